"""This process collects rows only if it knows that they are small."""

import pytest

from tidemark.engine.write.parquet_writer import RunSize
from tidemark.model.checkpoint.segments import StateHandle

LARGE = 24 * 2**20
NEW = StateHandle()
"""A table without rows, which says nothing about their size."""


@pytest.mark.parametrize(
    ("rows", "batch", "is_collected"),
    [(20, 1000, True), (20, LARGE, False), (65_537, 1000, False), (20, None, False)],
)
def test_rows_whose_size_only_the_batch_shows(rows: int, batch: int | None, is_collected: bool) -> None:  # noqa: FBT001
    assert RunSize.of_batch(rows, NEW, batch).is_collected == is_collected


@pytest.mark.parametrize(
    ("rows", "batch", "is_collected"),
    [(5_000, None, True), (5_001, None, False), (5_001, 1000, True), (5_001, LARGE, False)],
)
def test_runs_of_a_state_of_unknown_size(rows: int, batch: int | None, is_collected: bool) -> None:  # noqa: FBT001
    assert RunSize.of(rows, NEW, batch).is_collected == is_collected
