"""`tidemark erase` of an operator that others are chained behind: real commands; plain counts are the oracle (Q9)."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.disk_context import commands_over
from tests.support.sales_pipeline import SalesPipeline

DECLARATION = Path(__file__).parent / "pipelines" / "visits.py"
ERASE = ("erase", "visits", "accounts", "--key", "bob")


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[SalesPipeline]:
    """Three checkpoints of a chain, whose second one a savepoint names."""
    made = SalesPipeline.opened(tmp_path, "visits")
    made.checkpoints(3)
    with commands_over(made.line):
        made.tidemark("savepoint", "create", "visits", "june", "--checkpoint", "chk-2").ok()
        yield made


def told(shop: SalesPipeline, uid: str, checkpoint: int) -> list[dict[str, Any]]:
    return list(shop.tidemark("state", "show", "visits", uid, "--checkpoint", str(checkpoint), "--json").ok().json)


def test_what_is_chained_by_the_same_key_is_erased_and_the_rest_is_told(shop: SalesPipeline) -> None:
    before = {n: shop.accounts(n) for n in shop.made}
    assert all(found["bob"] for found in before.values())
    parts = {n: {(r["shop"], r["account"]): r["visits"] for r in told(shop, "at_shops", n)} for n in shop.made}
    plan = shop.tidemark(*ERASE, "--json").ok().json
    assert [(c["uid"], c["key"], c["executed"]) for c in plan["chained"]] == [("again", ["bob"], False)]
    assert plan["chained"][0]["restore_points"].keys() == plan["restore_points"].keys() == {"chk-1", "chk-2", "chk-3"}
    assert plan["chained_in_part"]["at_shops"]["key_by"] == ["shop", "account"]
    assert plan["chained_in_part"]["at_shops"]["rows"] > 0
    assert (plan["chained_by_other_keys"], plan["chained_unknown"]) == ({"shops": ["shop"]}, False)
    done = shop.tidemark(*ERASE, "--execute", "--json").ok().json
    assert [done["executed"], done["chained"][0]["executed"]] == [True, True]
    for number, accounts in before.items():
        rest = {name: count for name, count in accounts.items() if name != "bob"}
        assert {r["account"]: r["sales"] for r in told(shop, "accounts", number)} == rest
        assert {r["account"]: r["visits"] for r in told(shop, "again", number)} == rest
        assert {(r["shop"], r["account"]): r["visits"] for r in told(shop, "at_shops", number)} == parts[number]
    again = shop.tidemark(*ERASE, "--json").ok().json
    assert (again["rows"], again["chained"][0]["rows"]) == (0, 0)


def test_what_holds_the_key_in_part_is_erased_by_what_the_command_says(shop: SalesPipeline) -> None:
    said = shop.tidemark(*ERASE, "--execute").ok().err
    assert "rows of at_shops, downstream of accounts, hold the key as part of theirs: shop, account" in said
    assert "tidemark erase visits at_shops --key SHOP --key ACCOUNT" in said
    assert "shops, downstream of accounts, has other keys (shop), so its rows cannot be traced to the key" in said
    held = {r["shop"] for n in shop.made for r in told(shop, "at_shops", n) if r["account"] == "bob"}
    for name in held:
        shop.tidemark("erase", "visits", "at_shops", "--key", name, "--key", "bob", "--execute").ok()
    assert not [r for n in shop.made for r in told(shop, "at_shops", n) if r["account"] == "bob"]
    assert shop.tidemark(*ERASE, "--json").ok().json["chained_in_part"]["at_shops"]["rows"] == 0


def test_a_chained_operator_drops_blocked_records_and_counts_those_of_others(shop: SalesPipeline) -> None:
    shop.tidemark(*ERASE, "--block", "--execute").ok()
    had = {r["account"]: r["visits"] for r in told(shop, "again", 3)}
    shop.checkpoint()
    new = Counter(shop.accounts(4)) - Counter(shop.accounts(3))
    assert {r["account"]: r["visits"] for r in told(shop, "again", 4)} == Counter(had) + (
        new - Counter({"bob": new["bob"]})
    )


def test_a_hold_on_what_is_chained_refuses_all_of_it(shop: SalesPipeline) -> None:
    shop.tidemark("savepoint", "hold", "visits", "june", "--why", "case 1").ok()
    before = shop.tidemark.objects("visits")
    shop.tidemark(*ERASE, "--execute").failed(4, "legal hold")
    assert shop.tidemark.objects("visits") == before


def test_without_the_pipelines_file_nobody_knows_what_is_behind(shop: SalesPipeline) -> None:
    for path in shop.tidemark.context.settings.pipelines[0].glob("*.py"):
        path.unlink()
    answer = shop.tidemark(*ERASE)
    assert "no file declares visits any more" in answer.ok().err
