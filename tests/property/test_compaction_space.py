"""Over long random schedules compaction bounds the space, the rewriting and the number of files (T2, D20, F8).

The model replays every operation on a dict; of the product only the choice of what to merge is used. Runs are drawn in
phases, because a change of load is what a policy of levels is bad at. A failing case prints itself.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.model.checkpoint.segments import LiveFile, Segment, StateHandle, WrittenFile
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.model.state.compaction import Compaction, Group, LevelPolicy, amplification, due, groups_of

POLICY = LevelPolicy(file_bytes=4000)
ROW, TOMBSTONE, FOOTER = 40, 8, 60
"""Bytes."""
Rows = dict[int, bool]
"""Key to whether it is a value, not a tombstone."""


@dataclass(frozen=True)
class Phase:
    """Some checkpoints of one kind."""

    checkpoints: int
    keys: int
    first: int
    touched: int
    deleted: float
    files: int


PHASES = st.lists(
    st.builds(
        Phase,
        checkpoints=st.integers(1, 60),
        keys=st.integers(1, 2000),
        first=st.integers(0, 1000),
        touched=st.integers(1, 400),
        deleted=st.sampled_from([0.0, 0.0, 0.1, 0.5, 1.0]),
        files=st.sampled_from([1, 1, 1, 2, 30]),
    ),
    min_size=1,
    max_size=8,
)


@dataclass
class Simulation:
    """The groups of one operator, oldest first, with their rows, and what was done to them."""

    schema: OperatorSchema
    every: int
    levels: list[tuple[int, int, Rows, int]] = field(default_factory=list)
    alive: set[int] = field(default_factory=set)
    added: int = 0
    written: int = 0
    number: int = 0

    def run(self, rows: Rows, files: int) -> None:
        """A checkpoint appends a run."""
        self.number += 1
        self.levels.append((0, self.number, rows, min(files, len(rows))))
        self.added += len(rows)
        self.alive |= {key for key, is_value in rows.items() if is_value}
        self.alive -= {key for key, is_value in rows.items() if not is_value}

    def groups(self) -> tuple[StateHandle, list[Group]]:
        """What the product sees."""
        files: dict[Segment, list[LiveFile]] = {}
        after = 0
        for table, wanted in (("base", True), ("runs", False)):
            here = [level for level in self.levels if bool(level[0]) is wanted]
            if not here:
                continue
            found = [f for level in here for f in _files(*level)]
            total = sum(f.file.rows for f in found), sum(f.file.size for f in found)
            segment = Segment(
                path=table, version=0, after=after, through=here[-1][1], rows=total[0], bytes=total[1], files=len(found)
            )
            files[segment], after = found, segment.through
        handle = StateHandle(tuple(files))
        return handle, groups_of(handle, files.__getitem__)

    def compact(self) -> Compaction | None:
        """Merges what is due, as the engine does."""
        handle, groups = self.groups()
        wanted = due(self.schema, handle, groups, POLICY)
        if wanted is None:
            return None
        kept = len(wanted.kept)
        merged: Rows = {}
        for _, _, rows, _ in self.levels[kept:]:
            merged |= rows
        if wanted.is_deepest:
            merged = {key: True for key, is_value in merged.items() if is_value}
        self.written += len(merged)
        self.levels = self.levels[:kept]
        if merged:
            files = min(POLICY.files_for(wanted.merged), len(merged))
            self.levels.append((wanted.level, wanted.through, merged, files))
        return wanted


def _files(level: int, checkpoint: int, rows: Rows, count: int) -> Iterator[LiveFile]:
    values = sum(rows.values())
    size = values * ROW + (len(rows) - values) * TOMBSTONE
    for n in range(count):
        share = len(rows) * (n + 1) // count - len(rows) * n // count
        file = WrittenFile(path=f"{level}-{checkpoint}-{n}", size=size // count + FOOTER, rows=share, stats="{}")
        yield LiveFile(file=file, level=level, checkpoint=checkpoint)


def _runs(phases: list[Phase], seed: int, deletes: bool) -> Iterator[tuple[Rows, int]]:
    chance = Random(seed)
    for phase in phases:
        for _ in range(phase.checkpoints):
            keys = (phase.first + chance.randrange(phase.keys) for _ in range(chance.randrange(phase.touched) + 1))
            yield {key: not (deletes and chance.random() < phase.deleted) for key in keys}, phase.files


def _check(made: Simulation, done: Compaction) -> None:
    """What holds after every compaction."""
    _, groups = made.groups()
    rows, size = sum(g.rows for g in groups), sum(g.bytes for g in groups)
    files = sum(len(g.files) for g in groups)
    assert rows <= POLICY.space * len(made.alive), (rows, len(made.alive))
    assert size - files * FOOTER <= POLICY.space * len(made.alive) * ROW
    assert all(g.level for g in groups), "no run is left"
    if not done.is_deepest:
        assert amplification(groups) <= POLICY.space or size - groups[0].bytes < POLICY.small_bytes
    assert len(groups) <= 2 + math.log2(1 + rows)
    assert files <= len(groups) * 4 + size / POLICY.small_bytes + _oversized(done)


def _oversized(done: Compaction) -> float:
    """Files that the last merge may have too many, as its rows turned out to be fewer; the next one mends it."""
    return POLICY.files_for(done.merged)


@settings(max_examples=150, deadline=None, print_blob=True)
@given(phases=PHASES, seed=st.integers(0, 2**32), deletes=st.booleans(), every=st.sampled_from([1, 1, 1, 3, 20]))
def test_space_rewriting_and_files_stay_bounded(phases: list[Phase], seed: int, deletes: bool, every: int) -> None:
    made = Simulation(OperatorSchema("u", (), (), deletes=deletes), every)
    largest = 1
    for rows, files in _runs(phases, seed, deletes):
        made.run(rows, files)
        largest = max(largest, len(made.alive))
        done = made.compact() if made.number % every == 0 else None
        if done is not None:
            _check(made, done)
    assert made.written <= made.added * (4 + 2 * math.log2(1 + largest)), (made.written, made.added)


@settings(max_examples=30, deadline=None, print_blob=True)
@given(seed=st.integers(0, 2**32), touched=st.integers(10, 300), keys=st.integers(100, 3000))
def test_each_changed_row_of_a_steady_load_is_rewritten_a_few_times(seed: int, touched: int, keys: int) -> None:
    made = Simulation(OperatorSchema("u", (), ()), 1)
    for rows, files in _runs([Phase(600, keys, 0, touched, 0.0, 1)], seed, False):
        made.run(rows, files)
        made.compact()
    assert made.written <= made.added * (3 + math.log2(1 + keys / touched)), (made.written, made.added)


@settings(max_examples=50, deadline=None, print_blob=True)
@given(phases=PHASES, seed=st.integers(0, 2**32), deletes=st.booleans())
def test_a_compaction_leaves_nothing_due(phases: list[Phase], seed: int, deletes: bool) -> None:
    made = Simulation(OperatorSchema("u", (), (), deletes=deletes), 1)
    for rows, files in _runs(phases, seed, deletes):
        made.run(rows, files)
        rounds = 0
        while made.compact() is not None:
            rounds += 1
            assert rounds <= 2, "a second one only to mend the number of files"
        _, groups = made.groups()
        small = [g for g in groups if len(g.files) > 3 and g.bytes / len(g.files) < POLICY.file_bytes / 4]
        assert not small
