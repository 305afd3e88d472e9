"""The walk-throughs of incremental checkpoints, file by file on real Delta tables: Flink's, and ours (E15, D7)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.support.crashes import Killed
from tests.support.disk import ParquetFiles, write_file
from tests.support.retention import ONE_FOLD, DiskRetentionPipeline
from tests.support.tables_drivers import TABLE, DeltaTablesDriver, Fence, request
from tidemark.coordinator.checkpoints.job import ignore_step
from tidemark.coordinator.retention.root_set import collect_roots
from tidemark.declare.retention import Retention
from tidemark.model.checkpoint.manifest import Checkpoint, WrittenRun
from tidemark.model.checkpoint.segments import Segment, StateHandle, WrittenFile
from tidemark.model.retention.shared_state import Holder, SharedStateRegistry
from tidemark.model.schema.operator_schema import run_columns
from tidemark.tables.delta_tables import arrow_schema
from tidemark.tables.local_table_files import LocalTableFiles

KEEP = Retention.keep_last(2)


class Sstables:
    """One table whose commits are the checkpoints of Flink's article; files are called as its sstables are."""

    def __init__(self, root: Path) -> None:
        self.driver = DeltaTablesDriver(root)
        self.files = LocalTableFiles(str(root))
        self.named: dict[str, WrittenFile] = {}
        self.at: dict[str, int] = {}
        self.segments: list[Segment] = []

    def complete(self, uploaded: Sequence[str], merged: Sequence[str] = ()) -> None:
        """A checkpoint that uploads some sstables and names no longer what was merged."""
        number, parent = len(self.segments) + 1, self.segments[-1] if self.segments else None
        for name in uploaded:
            (self.named[name],) = self.driver.write(number, len(self.named) + 1)
        drop = tuple(self.named[name].path for name in merged)
        files = [self.named[name] for name in uploaded]
        done = self.driver.tables.commit(request(files, number, parent, drop=drop), Fence())
        self.segments.append(done.segment)

    def registry(self) -> dict[str, set[int]]:
        """File → checkpoints that are kept, by the product's registry, computed from the log."""
        kept = KEEP.select((n, n) for n in range(len(self.segments), 0, -1))
        holders = [
            Holder(name=str(n), why=("kept",), handles=(StateHandle((self.segments[n - 1],)),)) for n in sorted(kept)
        ]
        found = SharedStateRegistry.of(holders, self.files.history).by_file
        names = {f"{TABLE}/{file.path}": name for name, file in self.named.items()}
        return {names[path]: set(map(int, who)) for path, who in found.items()}

    def deleted(self) -> set[str]:
        """Files that nobody holds any more."""
        return set(self.named) - set(self.registry())


def test_flinks_walk_through(tmp_path: Path) -> None:
    table = Sstables(tmp_path)
    table.complete(["1", "2"])
    assert table.registry() == {"1": {1}, "2": {1}}
    table.complete(["3", "4"])
    assert table.registry() == {"1": {1, 2}, "2": {1, 2}, "3": {2}, "4": {2}}
    table.complete(["(1,2,3)", "5"], merged=["1", "2", "3"])
    assert table.registry() == {"1": {2}, "2": {2}, "3": {2}, "4": {2, 3}, "5": {3}, "(1,2,3)": {3}}
    assert table.deleted() == set(), "CP2 still needs 1, 2, 3"
    table.complete(["(4,5,6)"], merged=["4", "5"])
    assert table.registry() == {"4": {3}, "5": {3}, "(1,2,3)": {3, 4}, "(4,5,6)": {4}}
    assert table.deleted() == {"1", "2", "3"}


class OneFilePerRow(ParquetFiles):
    """A run with as many files as it has keys, as several tasks would leave it."""

    def write(self, folder: str, rows: Sequence[Any]) -> WrittenRun:
        if "/state/" not in folder:
            return super().write(folder, rows)
        schema, made = arrow_schema(run_columns(self.schemas[folder.split("/")[-4]])), []
        for n, row in enumerate(rows):
            file = write_file(str(self.root), f"{folder}/{n}", pa.Table.from_pylist([row], schema=schema))
            path = f"{folder.rpartition('/')[2]}/{file.path}"
            made.append(WrittenFile(path=path, size=file.size, rows=1, stats=file.stats))
        return WrittenRun(rows=len(rows), files=tuple(made))


class Story:
    """Checkpoints, compactions and sweeps; files are called in the order in which they appear: f1, f2, …, g(1-4)."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("tests.support.disk.ParquetFiles", OneFilePerRow)
        self.retained = DiskRetentionPipeline(root, ONE_FOLD)
        self.names: dict[str, str] = {}

    def complete(self, *accounts: str) -> Checkpoint:
        found = self.retained.checkpoint(*accounts)
        self._name()
        return found

    def compact(self) -> None:
        assert self.retained.merge()
        self._name()

    def _name(self) -> None:
        for path in sorted(self.retained.data() - set(self.names)):
            runs = sum(1 for name in self.names.values() if name.startswith("f"))
            self.names[path] = f"f{runs + 1}" if "/runs/" in path else f"g(1-{runs})"

    def handle(self, found: Checkpoint) -> list[tuple[str, int, int, list[str]]]:
        """Table and version (from 1), range, files."""
        return [
            (f"{s.path.rpartition('/')[2][0]}{s.version + 1}", s.after, s.through, sorted(self.names[p] for p in paths))
            for s in found.handles["accounts"]
            for paths in [self.retained.of_version(s)]
        ]

    def sweep(self) -> set[str]:
        """Names of the files that a sweep has deleted."""
        before = self.retained.data()
        self.retained.sweep(KEEP)
        return {self.names[path] for path in before - self.retained.data()}

    def registry(self) -> dict[str, set[str]]:
        """File → holders, as the plan of retention has it; compactions that wait for a plan are left out."""
        holders = [
            h for h in collect_roots(self.retained.coordinator, KEEP).holders(after_release=True) if h.name[:3] == "chk"
        ]
        found = SharedStateRegistry.of(holders, self.retained.files.history).by_file
        return {self.names[path]: set(who) for path, who in found.items()}


@pytest.fixture
def story(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Story:
    return Story(tmp_path, monkeypatch)


def test_our_walk_through(story: Story) -> None:
    one = story.complete("a", "b")
    assert story.handle(one) == [("r1", 0, 1, ["f1", "f2"])]
    assert story.registry() == {"f1": {"chk-1"}, "f2": {"chk-1"}}
    two = story.complete("a", "b")
    assert story.handle(two) == [("r2", 0, 2, ["f1", "f2", "f3", "f4"])]
    assert story.registry() == {
        "f1": {"chk-1", "chk-2"}, "f2": {"chk-1", "chk-2"}, "f3": {"chk-2"}, "f4": {"chk-2"},
    }  # fmt: skip
    assert story.sweep() == set()
    story.compact()
    three = story.complete("a")
    assert story.handle(three) == [("b1", 0, 2, ["g(1-4)"]), ("r3", 2, 3, ["f5"])]
    assert story.registry() == {
        "f1": {"chk-2"}, "f2": {"chk-2"}, "f3": {"chk-2"}, "f4": {"chk-2"}, "g(1-4)": {"chk-3"}, "f5": {"chk-3"},
    }  # fmt: skip
    assert story.sweep() == set(), "manifest 2 needs f1 to f4"
    four = story.complete("a")
    assert story.handle(four) == [("b1", 0, 2, ["g(1-4)"]), ("r4", 2, 4, ["f5", "f6"])]
    assert story.registry() == {"g(1-4)": {"chk-3", "chk-4"}, "f5": {"chk-3", "chk-4"}, "f6": {"chk-4"}}
    assert story.sweep() == {"f1", "f2", "f3", "f4"}
    story.compact()
    five = story.complete("a")
    assert story.handle(five) == [("b2", 0, 4, ["g(1-6)"]), ("r5", 4, 5, ["f7"])]
    assert story.registry() == {
        "g(1-4)": {"chk-4"}, "f5": {"chk-4"}, "f6": {"chk-4"}, "g(1-6)": {"chk-5"}, "f7": {"chk-5"},
    }  # fmt: skip
    assert story.sweep() == set()


def test_a_savepoint_keeps_its_files_until_it_is_disposed(story: Story) -> None:
    for _ in range(2):
        story.complete("a", "b")
    story.retained.save("before-upgrade", 2)
    story.compact()
    for _ in range(3):
        story.complete("a")
    assert story.sweep() == set(), "no byte was copied, and none goes"
    story.retained.savepoints.dispose("before-upgrade")
    assert story.sweep() == {"f1", "f2", "f3", "f4"}


def test_when_the_third_checkpoint_dies_behind_its_commit_the_second_is_whole(story: Story) -> None:
    for _ in range(2):
        two = story.complete("a", "b")
    rows = story.retained.rows(two)
    story.compact()
    story.retained.crash = _at("runs.accounts", "after")
    with pytest.raises(Killed):
        story.complete("a")
    story.retained.crash = ignore_step
    story._name()
    assert story.sweep() == set(), "what the dead attempt has removed in the log, manifest 2 names"
    assert story.retained.rows(two) == rows
    three = story.complete()
    assert [files for *_, files in story.handle(three)][0] == ["g(1-4)"]
    story.complete("a")
    assert {"f1", "f2", "f3", "f4"} < story.sweep(), "with the file of the attempt that died"


def _at(step: str, moment: str) -> Any:
    def crash(*reached: str) -> None:
        if reached == (step, moment):
            raise Killed

    return crash
