"""Which levels are compacted: a pure choice; every output covers exactly its input, on forks too."""

import os
import random
import subprocess
import sys

import pytest

from tidemark.model.checkpoint.segments import LiveFile, Segment, StateHandle, WrittenFile
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.model.state.compaction import Compaction, LevelPolicy, amplification, due, groups_of

BASE, RUNS = "p/state/u/t2-1/base", "p/state/u/t2-1/runs"
RATIO = 2
PLAIN, DELETING = OperatorSchema("u", (), ()), OperatorSchema("u", (), (), deletes=True)
MIB = 2**20


def live(checkpoint: int, rows: int, level: int = 0, size: int = 0, part: str = "") -> LiveFile:
    path = f"{level}-{checkpoint}{part}.parquet"
    return LiveFile(
        file=WrittenFile(path=path, size=size or rows * 10, rows=rows, stats="{}"),
        level=level,
        checkpoint=checkpoint,
    )


class Handle:
    """A handle and its files, built oldest first."""

    def __init__(self) -> None:
        self.files: dict[Segment, list[LiveFile]] = {}

    def segment(self, path: str, after: int, *files: LiveFile) -> "Handle":
        made = Segment(
            path=path,
            version=0,
            after=after,
            through=files[-1].checkpoint,
            rows=sum(f.file.rows for f in files),
            bytes=sum(f.file.size for f in files),
            files=len(files),
        )
        self.files[made] = list(files)
        return self

    def due(self, schema: OperatorSchema = PLAIN, policy: LevelPolicy | None = None) -> Compaction | None:
        handle = StateHandle(tuple(self.files))
        return due(schema, handle, groups_of(handle, self.files.__getitem__), policy)

    @property
    def amplification(self) -> float:
        return amplification(groups_of(StateHandle(tuple(self.files)), self.files.__getitem__))


def committed(wanted: Compaction) -> StateHandle:
    """The output, as the commit to `base` would leave it."""
    after = wanted.after(BASE)
    return wanted.output(Segment(path=BASE, version=9, after=after, through=wanted.through, rows=1, bytes=1, files=1))


def test_seven_runs_are_left_alone_and_eight_are_merged() -> None:
    seven = Handle().segment(RUNS, 0, *(live(n, 10) for n in range(1, 8)))
    assert seven.due() is None
    eight = Handle().segment(RUNS, 0, *(live(n, 10) for n in range(1, 9)))
    wanted = eight.due()
    assert wanted is not None
    assert (wanted.level, wanted.is_deepest, wanted.cut, wanted.through) == (1, True, 0, 8)
    assert wanted.parent(BASE) is None and wanted.drop(BASE) == ()


def test_a_base_much_larger_than_what_is_new_stays() -> None:
    runs = [live(n, 10) for n in range(9, 17)]
    big = Handle().segment(BASE, 0, live(8, 80 * RATIO + 1, level=3)).segment(RUNS, 8, *runs)
    wanted = big.due()
    assert wanted is not None and not wanted.is_deepest
    assert (wanted.level, wanted.cut, wanted.drop(BASE), wanted.after(BASE)) == (1, 8, (), 0)
    assert committed(wanted).after == 0
    small = Handle().segment(BASE, 0, live(8, 80 * RATIO, level=1)).segment(RUNS, 8, *runs)
    whole = small.due()
    assert whole is not None and whole.is_deepest
    assert (whole.level, whole.drop(BASE)) == (2, ("1-8.parquet",))


def test_a_fork_compacts_its_own_runs_and_leaves_the_parents_base() -> None:
    fork = (
        Handle()
        .segment("p/state/u/t1-1/base", 0, live(8, 10_000, level=2))
        .segment("p/state/u/t1-1/runs", 8, live(9, 3000), live(10, 10))
        .segment(RUNS, 10, *(live(n, 10) for n in range(11, 19)))
    )
    wanted = fork.due()
    assert wanted is not None
    found = committed(wanted)
    assert wanted.after(BASE) == 8, "runs of the parent timeline are runs: all of them are merged"
    assert [(s.path, s.after, s.through) for s in found] == [("p/state/u/t1-1/base", 0, 8), (BASE, 8, 18)]


@pytest.mark.parametrize("seed", range(200))
def test_every_output_covers_its_input_and_rewriting_is_logarithmic(seed: int) -> None:
    chance = random.Random(seed)
    base: list[LiveFile] = []
    runs: list[LiveFile] = []
    cut, written, added = 0, 0, 0
    for checkpoint in range(1, chance.randrange(20, 400)):
        rows = chance.randrange(1, 50)
        added += rows
        runs.append(live(checkpoint, rows))
        made = Handle()
        if base:
            made.segment(BASE, 0, *base)
        wanted = made.segment(RUNS, cut, *runs).due()
        if wanted is None:
            continue
        output = committed(wanted)
        assert (output.after, output.through) == (0, checkpoint), f"seed {seed}"
        merged = live(checkpoint, sum(g.rows for g in wanted.merged), wanted.level)
        written += merged.file.rows
        base = [f for f in base if f.path not in wanted.drop(BASE)] + [merged]
        runs, cut = [], checkpoint
        assert sum(f.file.rows for f in base) == added
        sizes = [f.file.rows for f in base]
        assert all(older > newer for older, newer in zip(sizes, sizes[1:], strict=False))
    assert written <= added * 12, f"seed {seed}"


def test_where_keys_are_deleted_newer_rows_may_be_a_third_of_the_base() -> None:
    runs = [live(n, 10) for n in range(9, 17)]
    for rows, deepest in ((240, False), (239, True)):
        made = Handle().segment(BASE, 0, live(8, rows, level=3)).segment(RUNS, 8, *runs)
        wanted, without = made.due(DELETING), made.due(PLAIN)
        assert wanted is not None and wanted.is_deepest is deepest
        assert without is not None and not without.is_deepest


def test_newer_rows_that_are_wider_than_those_of_the_base_are_counted_in_bytes() -> None:
    base, wide = live(8, 1000, level=3, size=40 * MIB), [live(n, 10, size=6 * MIB) for n in range(9, 17)]
    wanted = Handle().segment(BASE, 0, base).segment(RUNS, 8, *wide).due()
    assert wanted is not None and wanted.is_deepest
    few = Handle().segment(BASE, 0, base).segment(RUNS, 8, *wide[:6])
    assert few.due() is None and few.amplification == 1 + 36 / 40
    more = Handle().segment(BASE, 0, base).segment(RUNS, 8, *wide[:7]).due()
    assert more is not None and more.is_deepest, "due for its space, before there are eight runs"


def test_a_small_state_is_not_compacted_for_its_space_before_eight_runs() -> None:
    runs = [live(n, 100) for n in range(2, 5)]
    made = Handle().segment(BASE, 0, live(1, 10, level=1)).segment(RUNS, 1, *runs)
    assert made.due() is None and made.amplification == 31.0


def test_many_small_files_are_merged_along_and_a_few_or_large_ones_are_not() -> None:
    def base(count: int, size: int) -> Handle:
        files = [live(8, 100_000, level=3, size=size, part=f"-{n}") for n in range(count)]
        return Handle().segment(BASE, 0, *files).segment(RUNS, 8, live(9, 1))

    scattered = base(39, 4 * MIB).due()
    assert scattered is not None and scattered.is_deepest
    assert LevelPolicy().files_for(scattered.merged) == 5
    assert base(40, 8 * MIB).due() is None
    assert base(3, 1 * MIB).due() is None
    alone = Handle().segment(BASE, 0, *(live(8, 10, level=3, size=100, part=f"-{n}") for n in range(40))).due()
    assert alone is not None and alone.through == 8 and len(alone.drop(BASE)) == 40


def test_everything_is_rewritten_on_demand_if_that_changes_anything() -> None:
    whole = LevelPolicy.everything()
    assert Handle().segment(BASE, 0, live(8, 10, level=1)).due(policy=whole) is None
    levels = Handle().segment(BASE, 0, live(8, 10, level=3), live(9, 1, level=1)).due(policy=whole)
    assert levels is not None and levels.is_deepest and levels.kept == ()
    run = Handle().segment(RUNS, 0, live(1, 1)).due(policy=whole)
    assert run is not None and run.is_deepest
    assert due(PLAIN, StateHandle(), [], whole) is None


def test_a_process_that_only_compacts_lets_others_go_first() -> None:
    script = "import os; from tidemark.operations import compaction; compaction.yield_processors(); print(os.nice(0))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert int(done.stdout) == min(19, os.nice(0) + 10)
