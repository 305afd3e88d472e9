"""`retention plan | apply`, `storage`, legal holds, and verbs that meet a released checkpoint: the real commands."""

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.support.disk_context import commands_over
from tests.support.sales_pipeline import SalesPipeline
from tidemark.declare.retention import Retention
from tidemark.operations import retention
from tidemark.testing.twin.memory import ManualClock

KEEP = ("--keep", "keep_last(2)")


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[SalesPipeline]:
    """Five checkpoints, the second one compacted, so that a sweep has something to free."""
    made = SalesPipeline.opened(tmp_path)
    made.checkpoints(2, compact_every=2)
    made.checkpoints(3)
    with commands_over(made.line):
        yield made


def files(shop: SalesPipeline) -> set[str]:
    """Data files below the warehouse."""
    root = shop.tidemark.warehouse
    return {str(p.relative_to(root)) for p in root.rglob("*.parquet") if "_delta_log" not in p.parts}


def test_a_plan_says_what_goes_and_why_and_what_keeps_the_rest(shop: SalesPipeline) -> None:
    before = shop.tidemark.objects("till")
    told = shop.tidemark("retention", "plan", "till", *KEEP, "--json").ok().json
    assert (told["rule"], told["released"]) == ("keep_last(2)", ["chk-1", "chk-2", "chk-3"])
    assert told["free_files"] == len(told["free"]) == 2
    assert all(f["file"].startswith("till/state/accounts/t1-1/runs/") for f in told["free"])
    whys = {f["file"].split("/")[-2]: f["why"] for f in told["free"]}
    kept = "no restore point that is kept names it"
    assert whys == {"1.1": f"written for chk-1; {kept}", "2.1": f"written for chk-2; {kept}"}
    assert {f["since"] for f in told["free"]} == {None}
    assert {"newest", "keep_last(2)"} <= {k["why"] for k in told["kept_by"]}
    people = shop.tidemark("retention", "plan", "till", *KEEP).ok()
    assert "would release: chk-1 to chk-3" in people.err
    assert "till/state/accounts/t1-1/runs/1.1/part-0.parquet" in people.out
    assert shop.tidemark.objects("till") == before, "a plan writes nothing"


def test_without_a_rule_everything_is_kept_and_the_plan_says_so(shop: SalesPipeline) -> None:
    told = shop.tidemark("retention", "plan", "till", "--json").ok().json
    assert (told["rule"], told["released"], told["free"]) == (None, [], [])
    assert [k["why"] for k in told["kept_by"]] == ["no rule"]
    assert "every checkpoint is kept" in shop.tidemark("retention", "plan", "till").ok().err


def test_apply_is_a_dry_run_unless_it_is_told_otherwise(shop: SalesPipeline) -> None:
    before = shop.tidemark.objects("till")
    answer = shop.tidemark("retention", "apply", "till", *KEEP).ok()
    assert "would delete 0 files" in answer.err
    assert "--execute" in answer.err
    assert shop.tidemark.objects("till") == before


def test_what_one_run_releases_the_next_one_deletes_when_its_grace_time_is_over(shop: SalesPipeline) -> None:
    had = files(shop)
    first = shop.tidemark("retention", "apply", "till", *KEEP, "--execute", "--json").ok().json
    assert first["released"] == ["chk-1", "chk-2", "chk-3"]
    assert (first["deleted_files"], first["waiting_files"], first["broken"]) == (0, 2, [])
    assert files(shop) == had
    (since,) = {f["since"] for f in shop.tidemark("retention", "plan", "till", *KEEP, "--json").ok().json["free"]}
    assert since is not None
    second = shop.tidemark("retention", "apply", "till", *KEEP, "--grace", "0", "--execute", "--json").ok().json
    assert (second["released"], second["deleted_files"], second["verified"]) == ([], 2, 3)
    assert len(had - files(shop)) == 2
    third = shop.tidemark("retention", "apply", "till", *KEEP, "--grace", "0", "--execute", "--json").ok().json
    assert third["deleted_files"] == 0


def test_a_released_checkpoint_is_refused_by_every_verb_and_told_of(shop: SalesPipeline) -> None:
    shop.tidemark("retention", "apply", "till", *KEEP, "--grace", "0", "--execute").ok()
    verbs = (
        ("state", "show", "till", "accounts", "--checkpoint", "1"),
        ("state", "hash", "till", "accounts", "--checkpoint", "chk-1"),
        ("state", "sql", "till", "SELECT * FROM accounts_at(1)"),
        ("state", "diff", "till", "accounts", "--from", "1", "--to", "5"),
        ("restore", "till", "--checkpoint", "1", "--execute"),
        ("fork", "till", "trial", "--checkpoint", "1"),
        ("savepoint", "create", "till", "late", "--checkpoint", "1"),
        ("checkpoint", "replay", "till", "1"),
        ("export", "till", "--to", str(shop.tidemark.home / "out"), "--checkpoint", "1"),
        ("verify", "till", "--checkpoint", "1"),
    )
    for verb in verbs:
        answer = shop.tidemark(*verb).failed(3, "chk-1 was released at", "by keep_last(2)")
        assert "use one that is kept: chk-5, chk-4" in answer.lines[2], verb
    rows = {row["id"]: row["released"] for row in shop.tidemark("checkpoint", "list", "till", "--json").ok().json}
    assert rows == {"chk-5": False, "chk-4": False, "chk-3": True, "chk-2": True, "chk-1": True}
    assert "by keep_last(2)" in shop.tidemark("checkpoint", "show", "till", "1").ok().out
    assert shop.tidemark("checkpoint", "show", "till", "1", "--json").ok().json["released"]
    assert shop.tidemark("verify", "till", "--content", "--json").ok().json["broken"] == []
    held = {
        row["account"]: row["sales"] for row in shop.tidemark("state", "show", "till", "accounts", "--json").ok().json
    }
    assert held == shop.accounts(5)


def test_a_savepoint_keeps_its_checkpoint_and_storage_says_how_much(shop: SalesPipeline) -> None:
    shop.tidemark("savepoint", "create", "till", "june", "--checkpoint", "2").ok()
    shop.line.coordinator.objects  # noqa: B018  (the line is the same warehouse)
    done = shop.tidemark("retention", "apply", "till", *KEEP, "--grace", "0", "--execute", "--json").ok().json
    assert done["released"] == ["chk-1", "chk-3"]
    assert done["deleted_files"] == 0
    retention.declare_rule(shop.tidemark.context, "till", Retention.keep_last(2))
    told = shop.tidemark("storage", "till", "--json").ok().json
    (june,) = (k for k in told["kept_by"] if k["why"] == "savepoint june")
    assert june["held_by"] == ["chk-2"]
    assert june["alone_bytes"] > 0
    assert told["total"]["free"] == 0
    assert told["total"]["kept"] == sum(t["kept"] for t in told["tables"])
    assert "savepoint june" in shop.tidemark("storage", "till").ok().err
    shop.tidemark("savepoint", "dispose", "till", "june", "--execute").ok()
    assert shop.tidemark("storage", "till", "--json").ok().json["total"]["free"] == june["alone_bytes"]


def test_a_legal_hold_outlives_expiry_and_refuses_a_disposal(shop: SalesPipeline) -> None:
    shop.tidemark("savepoint", "create", "till", "audit", "--checkpoint", "1", "--expires", "30d").ok()
    shop.tidemark("savepoint", "hold", "till", "audit", "--why", "case 7", "--owner", "legal").ok()
    shop.tidemark("savepoint", "dispose", "till", "audit", "--execute").failed(4, "a legal hold of legal: case 7")
    context = shop.tidemark.context
    context.clock = ManualClock(context.clock.now_ms() + timedelta(days=60) // timedelta(milliseconds=1))
    kept = [k.why for k in retention.plan_sweep(context, "till", "keep_last(1)").kept]
    assert "savepoint audit, under a legal hold" in kept
    shop.tidemark("savepoint", "release", "till", "audit").ok()
    assert retention.plan_sweep(context, "till", "keep_last(1)").disposed == ("audit",)
    shop.tidemark("savepoint", "release", "till", "audit").failed(3, "no legal hold")


def test_words_that_are_no_rule_are_refused(shop: SalesPipeline) -> None:
    for words in ("keep_last", "__import__('os').system('true')", "keep_last(0)", "daily(3, timezone='Nowhere')"):
        shop.tidemark("retention", "plan", "till", "--keep", words).failed(2)
    shop.tidemark("retention", "apply", "till", "--grace", "soon").failed(2, "not a span of time")
    shop.tidemark("retention", "plan", "nothing").failed(3)


def test_a_damaged_newest_checkpoint_stops_a_release(shop: SalesPipeline) -> None:
    newest = json.loads(shop.tidemark("checkpoint", "show", "till", "5", "--json").ok().out)
    path = newest["sealed"]["acks"][0]["handle"]["segments"][-1]["path"]
    (shop.tidemark.warehouse / path / "5.1" / "part-0.parquet").unlink()
    before = shop.tidemark.objects("till")
    shop.tidemark("retention", "apply", "till", *KEEP, "--grace", "0", "--execute").failed(6, "5.1/part-0.parquet")
    assert shop.tidemark.objects("till") == before, "an older one may be the way back"


def test_a_checkpoint_whose_input_went_with_its_parent_cannot_be_repeated_and_says_so(shop: SalesPipeline) -> None:
    shop.tidemark("retention", "apply", "till", "--keep", "keep_last(1)", "--grace", "0", "--execute").ok()
    (segment,) = shop.line.coordinator.checkpoint(5).plan.handles["tills"]
    first = next(f.path for f in shop.line.tables.live_files(segment))
    (shop.tidemark.warehouse / segment.path / first).unlink()  # a later sweep would trim the log of that version
    answer = shop.tidemark("checkpoint", "replay", "till", "5").failed(
        3, "chk-5 cannot be replayed", "chk-4 was released"
    )
    assert "use one that is kept: chk-5" in answer.lines[2]


def test_a_fork_that_is_closed_is_let_go_and_storage_says_what_became_of_it(shop: SalesPipeline) -> None:
    tidemark = shop.tidemark
    tidemark("fork", "till", "what-if", "--checkpoint", "chk-1").ok()
    made = shop.line.checkpoint(timeline="what-if")
    kept = {k["why"] for k in tidemark("retention", "plan", "till", *KEEP, "--json").ok().json["kept_by"]}
    assert "newest" in kept
    before = tidemark.objects("till")
    told = tidemark("timeline", "close", "till", "what-if", "--json").ok().json
    assert (told["executed"], told["checkpoints"], told["begun_there"]) == (False, [made.plan.name], [])
    assert tidemark.objects("till") == before, "a dry run writes nothing"
    done = tidemark("timeline", "close", "till", "what-if", "--execute")
    assert "tidemark retention plan till" in done.ok().err
    assert made.plan.name in tidemark("retention", "plan", "till", *KEEP, "--json").ok().json["released"]
    fates = tidemark("storage", "till", "--json").ok().json["timelines"]
    assert fates == {"t1": "live", "what-if": "closed"}
    assert "what-if (closed)" in tidemark("storage", "till").ok().out
    assert "what-if  closed, fork of chk-1, 1 to" in tidemark("timeline", "list", "till").ok().out
    tidemark("fork", "till", "idle", "--checkpoint", "chk-2").ok()
    tidemark("timeline", "close", "till", "idle", "--execute").ok()
    now = ("retention", "apply", "till", *KEEP, "--grace", "0", "--execute", "--json")
    assert made.plan.name in tidemark(*now).ok().json["released"]
    assert not [path for path in files(shop) if "/what-if" in path]
    assert tidemark("verify", "till", "--content", "--json").ok().json["restore_points"] == [
        "chk-4",
        "chk-5",
        "timeline t1",
    ]
    for name in ("nobody", "../../x"):
        tidemark("timeline", "close", "till", name, "--execute").failed(2 if "/" in name else 3)
    tidemark("timeline", "close", "till", "t1", "--execute").failed(4, "timeline t1 is live", "tidemark restore till")
    for flags in ((), ("--discard", "--execute")):
        tidemark("promote", "till", "what-if", *flags).failed(4, "timeline what-if was closed")
