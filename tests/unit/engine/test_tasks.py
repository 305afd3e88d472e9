"""How many tasks and files a job is divided into: by the cluster and by the data."""

import pytest

from tidemark.engine.session.parallelism import FEWEST, MANY, SHUFFLES, task_conf
from tidemark.engine.write.parquet_writer import files_for
from tidemark.model.checkpoint.segments import Segment, StateHandle

MIB = 2**20


@pytest.mark.parametrize(
    ("widest", "rows", "tasks"),
    [
        (200, 0, 1),
        (200, FEWEST, 1),
        (200, FEWEST + 1, 2),
        (200, 20_000, 4),
        (200, 10**9, 200),
        (2, 20_000, 2),
        (1, 10**9, 1),
        (64, None, 64),
    ],
)
def test_few_rows_have_few_tasks_and_many_have_those_of_the_cluster(widest: int, rows: int | None, tasks: int) -> None:
    assert task_conf(widest, rows)[SHUFFLES] == str(tasks)


def test_only_a_large_job_is_planned_again_between_stages() -> None:
    assert "spark.sql.adaptive.enabled" not in task_conf(8, MANY - 1)
    assert "spark.sql.adaptive.enabled" not in task_conf(8, None)
    assert task_conf(8, MANY)["spark.sql.adaptive.enabled"] == "true"


def _written(rows: int, size: int) -> StateHandle:
    return StateHandle(
        (Segment(after=0, through=1, path="p/state/u/t1-1/runs", version=1, rows=rows, bytes=size, files=1),)
    )


@pytest.mark.parametrize(
    ("written", "rows", "files"),
    [
        (StateHandle(), 0, 1),
        (StateHandle(), 20_000, 1),
        (StateHandle(), 1_999_999, 1),
        (StateHandle(), 2_000_000, 2),
        # A few rows in a file are mostly its footer.
        (_written(10, 40_000), 1_999_999, 1),
        (_written(1_000_000, 256_000_000), MIB, 4),
        (_written(1_000_000, 256_000_000), 4 * MIB, 16),
        (_written(1_000_000, 4_000_000), 64_000_000, 64),
    ],
)
def test_a_file_has_64_mib_by_the_size_of_the_rows_so_far_and_at_most_a_million_rows(
    written: StateHandle, rows: int, files: int
) -> None:
    assert files_for(rows, written) == files
