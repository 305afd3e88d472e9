"""Which files of a sink are merged, and what a plan adopts: values only, against the rows that were appended."""

import math
import random
from dataclasses import dataclass, field

import pytest

from tidemark.coordinator.plans.inputs import adopt
from tidemark.model.checkpoint.segments import LiveFile, Segment, StateHandle, WrittenFile
from tidemark.model.checkpoint.store_objects import CompactionRecord
from tidemark.model.state.compaction import groups_of
from tidemark.model.state.row_compaction import RowPolicy, due_rows

Rows = list[tuple[int, int]]
"""Rows as pairs: the checkpoint that wrote the row, and its number."""
ROW_BYTES = 10


@dataclass
class AppendedTables:
    """Tables of one sink as values: files by table and version, and the rows of each file."""

    policy: RowPolicy
    handle: StateHandle = StateHandle()
    timeline: str = "t1"
    versions: dict[tuple[str, int], list[LiveFile]] = field(default_factory=dict)
    rows: dict[str, Rows] = field(default_factory=dict)
    written: int = 0

    @property
    def path(self) -> str:
        return f"p/sinks/alerts/{self.timeline}"

    def files_of(self, segment: Segment) -> list[LiveFile]:
        """What a reader of a segment finds; refuses one whose counts differ."""
        files = self.versions[segment.path, segment.version]
        found = [f for f in files if segment.after < f.checkpoint <= segment.through]
        assert segment.difference((f.file.size, f.file.rows) for f in found) is None
        return found

    def held(self, handle: StateHandle) -> Rows:
        """The rows that a reader returns."""
        names = [f.path for s in handle for f in self.files_of(s)]
        return sorted(row for name in names for row in self.rows[name] if row[0] > handle.expired)

    def append(self, checkpoint: int, count: int) -> None:
        """A checkpoint with so many rows; the table then has its parent's files and the new one."""
        made = self._file(checkpoint, 0, [(checkpoint, n) for n in range(count)])
        parent = self.handle.segment_of(self.path)
        live = [*(self.files_of(parent) if parent else ()), made]
        after = parent.after if parent else self.handle.through
        segment = self._commit(self.path, live, after, checkpoint)
        others = (s for s in self.handle if s.path != self.path)
        self.handle = self.handle.with_segments((*others, segment))

    def compact(self, checkpoint: int, read: StateHandle) -> CompactionRecord | None:
        """A compaction of a handle, with a commit to the second table."""
        wanted = due_rows(read, groups_of(read, self.files_of), self.policy)
        if wanted is None:
            return None
        assert not any(self.policy.is_large(g) for g in wanted.merged[:-1]), "a large file is written again"
        left = sorted(r for g in wanted.merged for f in g.files for r in self.rows[f.path] if r[0] > read.expired)
        most, base = self.policy.rows_per_file(wanted.merged), f"{self.path}~base"
        parts = [left[n : n + most] for n in range(0, len(left), most)]
        made = [self._file(wanted.through, wanted.level, part) for part in parts]
        self.written += len(left)
        parent = wanted.parent(base)
        kept = [f for f in (self.files_of(parent) if parent else ()) if f.path not in wanted.drop(base)]
        segment = self._commit(base, [*kept, *made], wanted.after(base), wanted.through)
        return CompactionRecord(
            uid="alerts~sinks",
            job=f"alerts.{checkpoint}.{len(self.versions)}",
            checkpoint=checkpoint,
            timeline=self.timeline,
            input=read,
            output=wanted.output(segment),
            commits=(),
            write_id="w",
        )

    def _file(self, checkpoint: int, level: int, rows: Rows) -> LiveFile:
        name = f"{len(self.rows):06d}.parquet"
        self.rows[name] = rows
        file = WrittenFile(path=name, size=ROW_BYTES * len(rows), rows=len(rows), stats="{}")
        return LiveFile(file=file, level=level, checkpoint=checkpoint)

    def _commit(self, path: str, live: list[LiveFile], after: int, through: int) -> Segment:
        version = sum(at == path for at, _ in self.versions)
        self.versions[path, version] = live
        held = [f.file for f in live if after < f.checkpoint <= through]
        return Segment(
            path=path,
            version=version,
            after=after,
            through=through,
            rows=sum(f.rows for f in held),
            bytes=sum(f.size for f in held),
            files=len(held),
        )


@pytest.mark.parametrize("seed", range(150))
def test_a_walk_of_appends_compactions_adoptions_expiry_and_restores_loses_no_row(seed: int) -> None:
    print(f"seed {seed}")
    chance = random.Random(seed)
    made = AppendedTables(RowPolicy(runs=chance.choice((2, 4, 8)), file_bytes=chance.choice((200, 2000, 2**40))))
    appended: dict[int, Rows] = {}
    manifests: dict[int, tuple[StateHandle, Rows, dict[int, Rows]]] = {}
    waiting: list[CompactionRecord] = []
    timelines = 1
    for checkpoint in range(1, chance.randrange(20, 300)):
        for record in list(waiting):  # a plan adopts some result that fits, or none
            merged = adopt(made.handle, record) if record.timeline == made.timeline else None
            if merged is not None and chance.random() < 0.7:
                made.handle = merged
                waiting.remove(record)
        if chance.random() < 0.2 and appended:
            made.handle = StateHandle(made.handle.segments, expired=max(made.handle.expired, checkpoint - 20))
        if chance.random() < 0.8:
            count = chance.randrange(1, 30)
            appended[checkpoint] = [(checkpoint, n) for n in range(count)]
            made.append(checkpoint, count)
        wanted = sorted(row for rows in appended.values() for row in rows if row[0] > made.handle.expired)
        assert made.held(made.handle) == wanted
        manifests[checkpoint] = (made.handle, wanted, dict(appended))
        if chance.random() < 0.6:
            done = made.compact(checkpoint, made.handle)
            waiting += [] if done is None else [done]
        if chance.random() < 0.02:
            back = chance.choice(sorted(manifests))
            timelines += 1
            made.timeline, (made.handle, _, before) = f"t{timelines}", manifests[back]
            appended = dict(before)
    for handle, rows, _ in manifests.values():
        assert made.held(handle) == rows


@pytest.mark.parametrize("seed", range(30))
def test_files_and_rewriting_stay_bounded(seed: int) -> None:
    print(f"seed {seed}")
    chance = random.Random(seed)
    size = chance.choice((500, 5000, 2**40))
    made, added = AppendedTables(RowPolicy(file_bytes=size)), 0
    expires = chance.choice((0, 0, 50, 200))
    for checkpoint in range(1, 1000):
        count = chance.randrange(1, chance.choice((2, 20, 200)))
        added += count
        if expires:
            made.handle = StateHandle(made.handle.segments, expired=max(0, checkpoint - expires))
        made.append(checkpoint, count)
        record = made.compact(checkpoint, made.handle)
        if record is not None:
            merged = adopt(made.handle, record)
            assert merged is not None
            made.handle = merged
        files = sum(s.files for s in made.handle)
        if expires and checkpoint > 3 * expires:
            oldest = min(row[0] for s in made.handle for f in made.files_of(s) for row in made.rows[f.path])
            assert oldest > checkpoint - expires - expires / 4 - 16, "a group spans a quarter of the kept checkpoints"
        assert files <= 2 * made.handle.bytes / size + 2 * math.log2(added + 2) + 12, f"seed {seed} at {checkpoint}"
    assert made.written <= 8 * added


def test_seven_runs_are_left_alone_and_eight_are_merged() -> None:
    made = AppendedTables(RowPolicy())
    for checkpoint in range(1, 8):
        made.append(checkpoint, 1)
    assert made.compact(7, made.handle) is None
    made.append(8, 1)
    record = made.compact(8, made.handle)
    assert record is not None
    assert [(s.path, s.after, s.through, s.files) for s in record.output] == [("p/sinks/alerts/t1~base", 0, 8, 1)]


def test_groups_that_have_expired_as_a_whole_are_dropped_unread() -> None:
    made = AppendedTables(RowPolicy(runs=2, ratio=0))
    for checkpoint in range(1, 7):
        made.append(checkpoint, 3)
        record = made.compact(checkpoint, made.handle)
        made.handle = made.handle if record is None else adopt(made.handle, record) or made.handle
    assert sum(s.files for s in made.handle) == 3
    made.handle = StateHandle(made.handle.segments, expired=5)
    before = made.written
    made.append(7, 1)
    made.append(8, 1)
    record = made.compact(8, made.handle)
    assert record is not None and made.written == before + 2
    merged = adopt(made.handle, record)
    assert merged is not None and sum(s.files for s in merged) == 2, "(5, 6] has a row that is shown"
    assert made.held(merged) == [(6, 0), (6, 1), (6, 2), (7, 0), (8, 0)]


def test_everything_small_is_merged_on_demand_and_what_is_whole_is_left_alone() -> None:
    made = AppendedTables(RowPolicy.everything())
    assert made.compact(0, made.handle) is None
    made.append(1, 5)
    record = made.compact(1, made.handle)
    assert record is not None
    assert made.compact(1, record.output) is None
    expired = StateHandle(record.output.segments, expired=1)
    again = made.compact(1, expired)
    assert again is not None and again.output.rows == 0
    assert made.compact(1, again.output) is None
