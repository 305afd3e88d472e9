"""Flink's walk through incremental checkpoints, told in runs and a base, file by file (E16, F4; keep the last two)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

from tests.support.bank import BankPipeline
from tests.support.memory import Unfenced
from tests.unit.coordinator.test_attempts import begun
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.commits import CommitRequest
from tidemark.model.checkpoint.manifest import Checkpoint, WrittenRun
from tidemark.model.checkpoint.segments import StateHandle, WrittenFile
from tidemark.model.checkpoint.store_objects import CompactionRecord
from tidemark.testing.twin.memory import MemoryTables
from tidemark.testing.twin.merge import compact_rows
from tidemark.testing.twin.tables import Row

UID = "accounts"
KEPT = 2
TWO, ONE = ("a", "b"), ("a",)
"""Accounts of a run with two files, and of one with a single file."""


@dataclass
class NamedTables(MemoryTables):
    """One file per row of a run, called f1, f2, … in order of writing; of the base one file, called g(m-n)."""

    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def write(self, folder: str, rows: Sequence[Row]) -> WrittenRun:
        own, made = folder.rpartition("/")[2], []
        parts = [(f"f{next(self.numbers)}", [row]) for row in rows] if "/runs/" in folder else [(own, rows)]
        for name, held in parts:
            self.files[f"{folder}/{name}"] = tuple(held)
            made.append(WrittenFile(path=f"{own}/{name}", size=64 * len(held), rows=len(held), stats="{}"))
        return WrittenRun(rows=len(rows), files=tuple(made))


@dataclass
class Story:
    """Checkpoints and compactions, and which files the newest two manifests hold."""

    bank: BankPipeline = field(default_factory=lambda: BankPipeline(tables=NamedTables()))
    made: list[Checkpoint] = field(default_factory=list)

    def checkpoint(self, accounts: tuple[str, ...]) -> Checkpoint:
        for account in accounts:
            self.bank.send(1, account=account)
        self.made.append(self.bank.complete())
        return self.made[-1]

    def compact(self, through: int) -> None:
        """Merges all files of a manifest into the base; the next plan may adopt it."""
        found = self.bank.coordinator.checkpoint(through)
        tables, handle, schema = self.bank.tables, found.handles[UID], found.plan.schemas[UID]
        rows = compact_rows(schema, tables.rows(handle), found.now, deepest=True)
        table, job = f"{found.plan.tables[UID]}/base", f"g(1-{max(_number(n) for n in self.files(found))})"
        parent = handle.segment_of(table)
        request = CommitRequest(
            table=table,
            parent=parent,
            files=tables.write(f"{table}/{job}", rows).files,
            rows=len(rows),
            level=1,
            checkpoint=through,
            after=0,
            schema=(),
            write_id=job,
            metadata={},
            app=("compaction", through),
            drop=tuple(f.path for f in tables.live_files(parent)) if parent else (),
        )
        done = tables.commit(request, Unfenced())
        record = CompactionRecord(
            uid=UID,
            job=f"j{through}",
            checkpoint=through,
            timeline="t1",
            input=handle,
            output=StateHandle((done.segment,)),
            commits=(done.commit,),
            write_id=job,
        )
        self.bank.coordinator.objects.put(keys.compaction_key(UID, record.job), record)

    def files(self, found: Checkpoint) -> list[str]:
        """Names of the files of a manifest, oldest segment first."""
        return [_name(f.path) for s in found.handles[UID] for f in self.bank.tables.live_files(s)]

    def handle(self, found: Checkpoint) -> list[tuple[str, int, int, list[str]]]:
        """Table and version (from 1), range, files."""
        return [
            (f"{s.path.rpartition('/')[2][0]}{s.version + 1}", s.after, s.through)
            + ([_name(f.path) for f in self.bank.tables.live_files(s)],)
            for s in found.handles[UID]
        ]

    def registry(self) -> dict[str, set[int]]:
        """File to the retained manifests that name it: what retention would compute."""
        holders: dict[str, set[int]] = {}
        for found in self.made[-KEPT:]:
            for name in self.files(found):
                holders.setdefault(name, set()).add(found.id)
        return holders

    def let_go(self) -> set[str]:
        """Files that an older manifest names, and no retained one."""
        return {n for found in self.made[:-KEPT] for n in self.files(found)} - set(self.registry())


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _number(name: str) -> int:
    return int(name.rstrip(")").rpartition("-")[2].lstrip("f"))


def test_the_walk_through_file_by_file() -> None:
    story = Story()
    one = story.checkpoint(TWO)
    assert story.handle(one) == [("r1", 0, 1, ["f1", "f2"])]
    two = story.checkpoint(TWO)
    assert story.handle(two) == [("r2", 0, 2, ["f1", "f2", "f3", "f4"])]
    assert story.registry() == {"f1": {1, 2}, "f2": {1, 2}, "f3": {2}, "f4": {2}}
    story.compact(2)
    three = story.checkpoint(ONE)
    assert story.handle(three) == [("b1", 0, 2, ["g(1-4)"]), ("r3", 2, 3, ["f5"])]
    assert story.registry() == {"f1": {2}, "f2": {2}, "f3": {2}, "f4": {2}, "g(1-4)": {3}, "f5": {3}}
    assert story.let_go() == set(), "manifest 2 needs f1 to f4"
    four = story.checkpoint(ONE)
    assert story.handle(four) == [("b1", 0, 2, ["g(1-4)"]), ("r4", 2, 4, ["f5", "f6"])]
    assert story.registry() == {"g(1-4)": {3, 4}, "f5": {3, 4}, "f6": {4}}
    assert story.let_go() == {"f1", "f2", "f3", "f4"}
    story.compact(4)
    five = story.checkpoint(ONE)
    assert story.handle(five) == [("b2", 0, 4, ["g(1-6)"]), ("r5", 4, 5, ["f7"])]
    assert story.registry() == {"g(1-4)": {4}, "f5": {4}, "f6": {4}, "g(1-6)": {5}, "f7": {5}}
    assert story.let_go() == {"f1", "f2", "f3", "f4"}, "nothing more"
    assert story.bank.state(UID) == {("a",): (5, 5), ("b",): (2, 2)}


def test_a_compaction_that_is_ready_after_the_plan_waits_for_the_next_one() -> None:
    story = Story()
    for _ in range(2):
        story.checkpoint(TWO)
    story.bank.send(1, account="a")
    story.bank.plan()
    story.compact(2)
    three = story.checkpoint(())
    assert story.handle(three) == [("r3", 0, 3, ["f1", "f2", "f3", "f4", "f5"])]
    four = story.checkpoint(ONE)
    assert story.handle(four) == [("b1", 0, 2, ["g(1-4)"]), ("r4", 2, 4, ["f5", "f6"])]
    assert story.let_go() == set()
    story.checkpoint(ONE)
    assert story.let_go() == {"f1", "f2", "f3", "f4"}


def test_when_the_third_checkpoint_dies_behind_its_commit_the_second_is_whole() -> None:
    story = Story()
    for _ in range(2):
        story.checkpoint(TWO)
    story.compact(2)
    story.bank.send(1, account="a")
    plan = story.bank.plan()
    story.bank.execute(begun(story.bank, plan))
    del story.bank.store.objects[keys.outcome_key(plan.slot, 1)]  # as if it had died before its seal
    newest = story.bank.tables.tables[f"{plan.tables[UID]}/runs"][-1]
    assert {_name(path) for path in newest.live} == {"f5"}, "the commit of run 3 removed what was compacted"
    assert story.files(story.bank.coordinator.checkpoint(2)) == ["f1", "f2", "f3", "f4"]
    assert story.bank.state(UID) == {("a",): (2, 2), ("b",): (2, 2)}
    three = story.checkpoint(())
    assert story.handle(three) == [("b1", 0, 2, ["g(1-4)"]), ("r4", 2, 3, ["f6"])]
    assert story.bank.state(UID) == {("a",): (3, 3), ("b",): (2, 2)}
