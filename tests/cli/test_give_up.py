"""A damaged manifest, as an operator meets it: named by every command, put back or given up (fault 32)."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.disk_context import commands_over
from tests.support.sales_pipeline import SalesPipeline


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[SalesPipeline]:
    """Four checkpoints."""
    made = SalesPipeline.opened(tmp_path)
    made.checkpoints(4)
    with commands_over(made.line):
        yield made


def manifest(shop: SalesPipeline, number: int) -> Path:
    return Path(shop.tidemark.warehouse / "till" / "timelines" / "t1" / f"{number:012d}.json")


def damage(shop: SalesPipeline, number: int) -> bytes:
    """Tears a manifest; returns what it was."""
    path = manifest(shop, number)
    whole = path.read_bytes()
    path.chmod(0o644)
    path.write_bytes(whole[: len(whole) // 2])
    return whole


def listed(shop: SalesPipeline) -> list[str]:
    return [c["id"] for c in shop.tidemark("checkpoint", "list", "till", "--json").ok().json]


def test_it_is_named_by_plan_and_apply_and_keeps_its_line(shop: SalesPipeline) -> None:
    damage(shop, 2)
    planned = shop.tidemark("retention", "plan", "till", "--keep", "keep_last(1)", "--json").ok().json
    (bad,) = planned["damaged"]
    assert (bad["checkpoint"], bad["blocks"]) == ("chk-2", ["t1"])
    assert (planned["released"], planned["free_files"]) == ([], 0)
    told = shop.tidemark("retention", "plan", "till", "--keep", "keep_last(1)").ok().err
    assert "tidemark checkpoint give-up till chk-2" in told
    applied = shop.tidemark("retention", "apply", "till", "--keep", "keep_last(1)", "--execute", "--json")
    assert applied.code == 6, applied.err
    assert json.loads(applied.out)["damaged"] == planned["damaged"]
    assert "till/timelines/t1/000000000002.json" in applied.err
    checked = shop.tidemark("verify", "till")
    assert (checked.code, "000000000002.json" in checked.err) == (6, True)


def test_put_back_nothing_is_lost(shop: SalesPipeline) -> None:
    asked = ("state", "show", "till", "accounts", "--checkpoint", "2", "--json")
    rows = shop.tidemark(*asked).ok().json
    whole = damage(shop, 2)
    shop.tidemark("retention", "apply", "till", "--keep", "keep_last(1)", "--grace", "0", "--execute")
    manifest(shop, 2).write_bytes(whole)
    assert shop.tidemark(*asked).ok().json == rows


def test_given_up_it_is_passed_over_by_every_command(shop: SalesPipeline) -> None:
    damage(shop, 2)
    would = shop.tidemark("checkpoint", "give-up", "till", "chk-2", "--json").ok().json
    assert (would["given_up"], would["timeline"], would["goes_on_from"], would["read_again"]) == (False, "t1", None, {})
    assert shop.tidemark("verify", "till").code == 6
    done = shop.tidemark("checkpoint", "give-up", "till", "chk-2", "--execute", "--json").ok().json
    assert done == would | {"given_up": True}
    shop.tidemark("verify", "till").ok()
    assert listed(shop) == ["chk-4", "chk-3", "chk-1"]
    shop.tidemark("checkpoint", "show", "till", "chk-2").failed(3, "chk-2 was given up")
    shop.tidemark("restore", "till", "--checkpoint", "chk-2").failed(3, "chk-2 was given up")
    shop.tidemark("state", "show", "till", "accounts", "--checkpoint", "2").failed(3, "chk-2 was given up")
    apply = ("retention", "apply", "till", "--keep", "keep_last(1)", "--grace", "0", "--execute", "--json")
    assert shop.tidemark(*apply).ok().json["released"] == ["chk-1", "chk-3"]
    shop.tidemark("checkpoint", "give-up", "till", "chk-2").failed(2, "already")
    shop.tidemark("checkpoint", "give-up", "till", "chk-4").failed(2, "whole")
    shop.tidemark("checkpoint", "give-up", "till", "chk-9").failed(3)
    shop.tidemark("timeline", "list", "till").ok()


def test_where_it_was_the_newest_one_the_line_goes_on_from_the_one_before(shop: SalesPipeline) -> None:
    damage(shop, 4)
    shop.tidemark("checkpoint", "list", "till").failed(1, "000000000004.json", "give-up")
    told = shop.tidemark("checkpoint", "give-up", "till", "chk-4", "--json").ok().json
    assert told["goes_on_from"] == "chk-3"
    assert told["read_again"]
    shop.tidemark("checkpoint", "give-up", "till", "4", "--execute").ok()
    assert listed(shop)[0] == "chk-3"
    made = shop.line.checkpoint()
    assert (made.plan.name, made.plan.parent) == ("chk-5", 3)
    assert {str(tp): {"start": r.start, "end": r.end} for tp, r in made.plan.ranges.items()} == told["read_again"]
    shop.tidemark("verify", "till").ok()
