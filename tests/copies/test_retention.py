"""Retention of a pipeline with every kind of state, sinks and broadcasts, and of one that is being imported."""

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.copies.transfer_pipeline import UIDS, TransferPipeline, transfer_pipeline
from tests.support.cli import Answer
from tests.support.disk_context import commands_over

SWEEP = ("retention", "apply", "market", "--grace", "0", "--execute", "--json", "--keep")


def test_what_every_kind_of_operator_has_made_stays_as_it_was(tmp_path: Path) -> None:
    made = transfer_pipeline(tmp_path / "one").grown(4, compacted=2)
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


@dataclass
class Brought:
    """Rows of another place on their way to a timeline of their own, by a command that dies."""

    kind: str
    made: TransferPipeline
    asked: tuple[str, ...]

    @classmethod
    def by(cls, verb: str, folder: Path) -> "Brought":
        """An import of a market's export beside it, or a patch of its second checkpoint."""
        made = transfer_pipeline(folder / "one").grown(2)
        if verb == "import":
            made.tidemark("export", "market", "--to", str(folder / "export")).ok()
            asked = ("import", str(folder / "export"), "--as", "market", "--timeline", "again", "--execute")
            return cls(verb, made, asked)
        pq.write_table(pa.table({"item": ["tea", "mug"]}), folder / "gone.parquet")
        told = ("--as", "again", "--delete", f"sold={folder / 'gone.parquet'}", "--execute")
        return cls(verb, made, ("savepoint", "patch", "market", "chk-2", *told))

    def tidemark(self, *arguments: str) -> Answer:
        """A command that reaches the broker in memory."""
        with commands_over(self.made.line):
            return self.made.tidemark(*arguments)

    def die(self, step: str, *, says_so: bool) -> None:
        """The command, which ends at a step; killed by SIGKILL, it does not say that its job is over."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(step, lambda *args, **kwargs: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                self.tidemark(*self.asked)
        if not says_so:
            (end,) = self.made.tidemark.warehouse.rglob(f"jobs/{self.kind}.*.end.json")
            end.unlink()

    @property
    def files(self) -> set[str]:
        """Rows that were brought."""
        return {p for p in self.made.tidemark.objects("market") if "/again-" in p and p.endswith(".parquet")}


@pytest.fixture(params=["import", "patch"])
def brought(request: pytest.FixtureRequest, tmp_path: Path) -> Brought:
    """Of each verb."""
    return Brought.by(request.param, tmp_path)


@pytest.mark.parametrize("says_so", [True, False])
def test_what_died_behind_its_plan_keeps_what_it_brought(brought: Brought, says_so: bool) -> None:
    brought.die("tidemark.coordinator.checkpoints.idle._sealed", says_so=says_so)
    there = brought.files
    assert there
    done = brought.tidemark(*SWEEP, "keep_last(1)").ok().json
    assert done["released"] == ["chk-1"]
    assert brought.files == there
    number = brought.tidemark(*brought.asked, "--json").ok().json["checkpoint"]
    brought.tidemark("verify", "market", "--content").ok()
    newest, gone = int(number.removeprefix("chk-")), {"tea", "mug"} if brought.kind == "patch" else set()
    before = {uid: brought.made.rows(uid, 2) for uid in UIDS}
    before["sold"] = [row for row in before["sold"] if row["item"] not in gone]
    assert {uid: brought.made.rows(uid, newest) for uid in UIDS} == before
    assert brought.files == there, "the repetition brings nothing a second time"


def test_what_died_ahead_of_its_plan_leaves_files_that_go(brought: Brought) -> None:
    brought.die("tidemark.coordinator.recovery.idle_plans.Idle.plan", says_so=True)
    assert brought.files
    brought.tidemark(*SWEEP, "keep_last(2)").ok()
    assert brought.files == set()
    brought.tidemark(*brought.asked).ok()
    brought.tidemark("verify", "market", "--content").ok()


def test_what_was_killed_ahead_of_its_plan_may_go_on_until_somebody_has_its_place(brought: Brought) -> None:
    brought.die("tidemark.coordinator.recovery.idle_plans.Idle.plan", says_so=False)
    orphans = brought.files
    brought.tidemark(*SWEEP, "keep_last(2)").ok()
    assert brought.files == orphans, "nobody knows that it is dead"
    brought.tidemark(*brought.asked).ok()
    brought.tidemark(*SWEEP, "keep_last(2)").ok()
    assert not brought.files & orphans
    assert brought.files
    brought.tidemark("verify", "market", "--content").ok()


def test_what_was_brought_and_released_is_told_by_what_brought_it(brought: Brought) -> None:
    brought.tidemark(*brought.asked).ok()
    if brought.kind == "patch":
        brought.tidemark("savepoint", "dispose", "market", "again", "--execute").ok()
    brought.tidemark("promote", "market", "again", "--discard", "--execute").ok()
    brought.tidemark("restore", "market", "--checkpoint", "chk-1", "--execute").ok()
    brought.made.grown(2)
    plan = brought.tidemark("retention", "plan", "market", "--keep", "keep_last(1)", "--all", "--json").ok().json
    whys = {f["why"] for f in plan["free"] if "/again-" in f["file"]}
    assert {why.split()[:3] == ["imported", "by", brought.kind] for why in whys} == {True}, whys
