"""Random walks over everything that makes, pins and frees files: in dicts, and on real Delta tables (E15, I4, I5)."""

import os
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.retention.retention_bugs import BUGS
from tests.retention.retention_walk import RetentionWalk
from tests.support.retention import DiskRetentionPipeline, MemoryRetentionPipeline, RetentionPipeline, expiring
from tidemark.errors import CorruptObjectError, StoreError

SEEDS = range(int(os.environ.get("TIDEMARK_TEST_WALKS", "20")))
ON_DISK = range(int(os.environ.get("TIDEMARK_TEST_DISK_WALKS", "4")))
SHORT = int(os.environ.get("TIDEMARK_TEST_SHORT_DISK_WALKS", "200"))
CHUNKS = 10
MEMORY = Path("/dev/shm")
"""Where short walks are if it is there: each makes hundreds of files, and waits for each of them on a disk."""


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as name:
        yield Path(name)


def walked(retained: RetentionPipeline, seed: int, steps: int, *, erases: bool = False) -> RetentionWalk:
    """A walk, compared with its oracle after every sweep, and after every erasure where there are some."""
    walk = RetentionWalk(retained, seed, erases=erases)
    try:
        return walk.steps(steps)
    except BaseException:
        print(f"seed {seed}, {steps} steps on {type(retained).__name__}", *walk.trace[-40:], sep="\n")
        raise


def test_what_is_kept_reads_back_and_what_is_free_is_gone_in_memory() -> None:
    walks = [walked(MemoryRetentionPipeline(), seed, 60) for seed in SEEDS]
    assert sum(walk.swept for walk in walks) > 5 * len(walks)
    assert sum(walk.freed for walk in walks) > 10 * len(walks)
    assert sum(walk.ended for walk in walks) >= 5


@pytest.mark.slow
@pytest.mark.parametrize("seed", ON_DISK)
def test_what_is_kept_reads_back_and_what_is_free_is_gone_on_delta_tables(seed: int, tmp_path: Path) -> None:
    walk = walked(DiskRetentionPipeline(tmp_path), seed, 40)
    assert walk.swept > 2


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_what_is_kept_reads_back_on_delta_tables_in_many_short_walks(chunk: int, folder: Path) -> None:
    seeds = range(1000 + chunk, 1000 + SHORT, CHUNKS)
    walks = [walked(DiskRetentionPipeline(folder / str(seed)), seed, 14) for seed in seeds]
    assert sum(walk.swept for walk in walks) > len(walks)


def test_an_erased_key_is_nowhere_and_all_else_reads_back_in_memory() -> None:
    walks = [walked(MemoryRetentionPipeline(), seed, 60, erases=True) for seed in SEEDS]
    assert sum(walk.erased for walk in walks) > len(walks)


def test_what_is_kept_reads_back_where_rows_and_dead_letters_expire() -> None:
    pipeline = expiring(timedelta(seconds=4))
    walks = [walked(MemoryRetentionPipeline(pipeline=pipeline), seed, 60, erases=True) for seed in SEEDS]
    assert sum(walk.swept for walk in walks) > 4 * len(walks)


@pytest.mark.slow
@pytest.mark.parametrize("seed", ON_DISK)
def test_an_erased_key_is_nowhere_and_all_else_reads_back_on_delta_tables(seed: int, tmp_path: Path) -> None:
    walk = walked(DiskRetentionPipeline(tmp_path), seed, 40, erases=True)
    assert walk.erased


@pytest.mark.parametrize("bug", ["ignore-forks"])
def test_a_walk_finds_a_planted_bug(bug: str) -> None:
    with pytest.raises((AssertionError, StoreError, CorruptObjectError)), BUGS[bug]():
        for seed in SEEDS:
            RetentionWalk(MemoryRetentionPipeline(), seed).steps(60)
