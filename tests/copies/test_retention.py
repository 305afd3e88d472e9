"""Retention of a pipeline with every kind of state, sinks and broadcasts, and of one that is being imported."""

from pathlib import Path

import pytest

from tests.copies.market import UIDS, market
from tidemark.coordinator.recovery.imports import Importer

SWEEP = ("retention", "apply", "market", "--grace", "0", "--execute", "--json", "--keep")


def test_what_every_kind_of_operator_has_made_stays_as_it_was(tmp_path: Path) -> None:
    made = market(tmp_path / "one").grown(4, compacted=2)
    for uid in UIDS:
        made.line.compact(uid, full=True)
    made.send()
    made.line.checkpoint()
    before = made.states()
    receipts = made.tidemark("sink", "show", "market", "receipts", "--limit", "1000", "--json").ok().json
    done = made.tidemark(*SWEEP, "keep_last(1)").ok().json
    assert done["released"] == ["chk-1", "chk-2", "chk-3", "chk-4"]
    assert done["deleted_files"] > len(UIDS)
    assert made.states() == before
    again = made.tidemark("sink", "show", "market", "receipts", "--limit", "1000", "--json").ok().json
    assert again == receipts, "a sink is an output: its rows stay with the newest checkpoint"
    told = made.tidemark("storage", "market", "--json").ok().json
    assert (told["total"]["free"], told["total"]["unknown"], told["total"]["waiting"]) == (0, 0, 0)
    assert {t["kind"] for t in told["tables"]} >= {"state", "dead_letters", "sinks"}
    made.tidemark("verify", "market", "--content").ok()
    made.grown(2, compacted=1)
    made.tidemark("verify", "market", "--content").ok()


def test_an_import_that_died_behind_its_plan_keeps_what_it_brought(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = market(tmp_path / "one").grown(2)
    made.tidemark("export", "market", "--to", str(tmp_path / "export")).ok()
    asked = ("import", str(tmp_path / "export"), "--as", "market", "--timeline", "again", "--execute")
    with monkeypatch.context() as patch:
        patch.setattr(Importer, "complete", lambda self, plan: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            made.tidemark(*asked)
    done = made.tidemark(*SWEEP, "keep_last(1)").ok().json
    assert done["released"] == ["chk-1"]
    number = made.tidemark(*asked, "--json").ok().json["checkpoint"]
    made.tidemark("verify", "market", "--content").ok()
    newest = int(number.removeprefix("chk-"))
    assert [made.rows(uid, newest) for uid in UIDS] == [made.rows(uid, 2) for uid in UIDS]


def test_an_import_that_died_ahead_of_its_plan_leaves_files_that_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = market(tmp_path / "one").grown(2)
    made.tidemark("export", "market", "--to", str(tmp_path / "export")).ok()
    asked = ("import", str(tmp_path / "export"), "--as", "market", "--timeline", "again", "--execute")
    with monkeypatch.context() as patch:
        patch.setattr(Importer, "plan", lambda self, wanted, slot, brought: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            made.tidemark(*asked)
    brought = {p for p in made.tidemark.objects("market") if "/again-" in p and p.endswith(".parquet")}
    assert brought
    made.tidemark(*SWEEP, "keep_last(2)").ok()
    left = {p for p in made.tidemark.objects("market") if "/again-" in p and p.endswith(".parquet")}
    assert left == set()
    made.tidemark(*asked).ok()
    made.tidemark("verify", "market", "--content").ok()
