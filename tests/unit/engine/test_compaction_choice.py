"""Which levels are compacted: a pure choice; every output covers exactly its input, on forks too."""

import random

import pytest

from tidemark.model.compaction import RATIO, Compaction, due, groups_of
from tidemark.model.segments import Segment, StateHandle
from tidemark.model.writes import LiveFile, WrittenFile

BASE, RUNS = "p/state/u/t2-1/base", "p/state/u/t2-1/runs"


def live(checkpoint: int, rows: int, level: int = 0) -> LiveFile:
    return LiveFile(
        file=WrittenFile(path=f"{level}-{checkpoint}.parquet", size=rows * 10, rows=rows, stats="{}"),
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

    def due(self, **options: int) -> Compaction | None:
        handle = StateHandle(tuple(self.files))
        return due(handle, groups_of(handle, self.files), **options)


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
