"""How many files a newcomer opens to follow one run; `tests/rules/walk.py` lists them."""

from pathlib import Path

from tests.rules.walk import run_files


def test_one_run_visits_at_most_forty_files(tmp_path: Path) -> None:
    files = run_files(tmp_path)
    assert {"operations/checkpoints.py", "coordinator/checkpoints/job.py", "tables/delta_tables.py"} <= set(files)
    assert len(files) <= 40, "\n".join(files)
