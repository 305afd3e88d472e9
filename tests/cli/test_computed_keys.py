"""Commands over keys that expressions compute, and over the one row of a global fold."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.disk_context import commands_over
from tests.support.sales_pipeline import SalesPipeline


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[SalesPipeline]:
    made = SalesPipeline.opened(tmp_path, "shops")
    made.checkpoints(2)
    with commands_over(made.line):
        yield made


def _days(shop: SalesPipeline, checkpoint: int) -> Counter[tuple[str, str]]:
    sold = shop.sales.upto(shop.ends(checkpoint))
    return Counter((sale["shop"].upper(), sale["at"][:10]) for sale in sold if sale["till"] >= 0)


def test_rows_are_read_diffed_and_traced_by_the_computed_key(shop: SalesPipeline) -> None:
    expected = _days(shop, 2)
    rows = shop.tidemark("state", "show", "shops", "days", "--json", "--limit", "1000").ok().json
    assert {(r["shop"], r["day"][:10]): r["sales"] for r in rows} == dict(expected)
    (name, day), count = expected.most_common()[0]
    key = ("--key", name, "--key", f"{day}T00:00:00Z")
    (row,) = shop.tidemark("state", "show", "shops", "days", *key, "--json").ok().json
    assert row["sales"] == count
    origin = shop.tidemark("state", "source", "shops", "days", *key, "--json").ok().json
    assert origin["row"]["sales"] == count
    before = _days(shop, 1)
    span = ("--from", "1", "--to", "2", "--json")
    diff = shop.tidemark("state", "diff", "shops", "days", *span, "--inserts").ok().json
    assert diff["counts"].get("inserted", 0) == len(expected.keys() - before.keys())
    upserts = shop.tidemark("state", "diff", "shops", "days", *span).ok().json
    assert upserts["counts"] == {"upserted": sum(diff["counts"].values())}


def test_one_row_is_read_like_any_other(shop: SalesPipeline) -> None:
    sold = shop.sales.upto(shop.ends(2))
    expected = sum((sale["account"] or "").endswith("b") for sale in sold)
    (row,) = shop.tidemark("state", "show", "shops", "total", "--json").ok().json
    assert (row["all_records"], row["sales"], row["last_account"]) == (True, expected, "bob")
    assert shop.tidemark("state", "show", "shops", "total", "--key", "true", "--json").ok().json == [row]
    shown = shop.tidemark("checkpoint", "show", "shops", "2", "--json").ok().json
    for ack in shown["sealed"]["acks"]:
        assert ack["read"] == ack["applied"] + ack["filtered"] + ack["dead_lettered"]


def test_an_erased_computed_key_stays_away_although_its_records_are_read_again(shop: SalesPipeline) -> None:
    (name, day), _ = _days(shop, 2).most_common()[0]
    key = ("--key", name, "--key", f"{day}T00:00:00Z")
    shop.tidemark("erase", "shops", "days", *key, "--execute", "--now").ok()
    rows = shop.tidemark("state", "show", "shops", "days", "--json", "--limit", "1000").ok().json
    assert (name, day) not in {(r["shop"], r["day"][:10]) for r in rows}
    shop.tidemark("restore", "shops", "--checkpoint", "1", "--execute").ok()
    shop.line.checkpoint()
    rows = shop.tidemark("state", "show", "shops", "days", "--json", "--limit", "1000").ok().json
    found = {(r["shop"], r["day"][:10]): r["sales"] for r in rows}
    expected = _days(shop, 2)
    del expected[name, day]
    assert found == dict(expected)
