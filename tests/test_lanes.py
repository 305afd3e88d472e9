"""Every test is in a lane of `make test` or `make test-more`, and lanes that share a queue share the work."""

import os
import re
import subprocess
import sys
import time
from collections import deque
from pathlib import Path

import pytest

from tests.side_by_side import LONG, LONG_WITH_SERVICES, PAGES, Command, Lane, _lanes
from tidemark.settings import PREFIX, TEST_PREFIX, Settings

HERE = Path(__file__).parent
ROOT = HERE.parent
FOLDERS = {"e2e": ["tests/e2e"], "airflow": ["tests/airflow", "tests/e2e"]}
"""Where lanes look for tests with a mark. Parts of `make test-more` run whatever is in their folders."""


def _says(text: str, code: int = 0) -> list[str]:
    return [sys.executable, "-c", f"import sys; print({text!r}); sys.exit({code})"]


@pytest.mark.parametrize("mark", FOLDERS)
def test_a_mark_with_a_lane_of_its_own_is_used_where_the_lane_looks(mark: str) -> None:
    known = [*FOLDERS[mark], *(path for parts in (*LONG_WITH_SERVICES, *LONG) for path in parts)]
    marked = [p for p in HERE.rglob("test_*.py") if p != Path(__file__) and f"pytest.mark.{mark}" in p.read_text()]
    names = [path.relative_to(ROOT).as_posix() for path in marked]
    assert any(name.startswith(FOLDERS[mark][0]) for name in names)
    assert [n for n in names if not any(n == place or n.startswith(f"{place}/") for place in known)] == []


def test_each_browser_test_is_in_one_lane() -> None:
    _, stack, pages, _ = _lanes(more=False, given=[])
    long = [path for parts in LONG_WITH_SERVICES for path in parts]
    assert "tests/e2e/test_pages.py" in PAGES and "tests/e2e/test_pages_walk.py" in long
    for path in PAGES:
        assert sum(path in lane for lane in (*pages, long)) == 1, path
        assert f"--ignore={path}" in stack, path


def test_lanes_empty_their_queue_whatever_fails(tmp_path: Path) -> None:
    queue = deque[Command]([_says("one"), _says("two", 3), _says("three"), _says("four")])
    lanes = [Lane(queue, tmp_path / f"{n}.log") for n in range(2)]
    for lane in lanes:
        lane.start()
    for lane in lanes:
        lane.join()
    said = "".join(lane.log.read_text() for lane in lanes if lane.log is not None and lane.log.exists())
    assert sorted(said.split()) == ["four", "one", "three", "two"]
    assert max(lane.worst for lane in lanes) == 3
    assert sum(len(lane.took) for lane in lanes) == 4 and not queue


def test_a_lane_goes_on_with_the_queue_that_follows_its_own(tmp_path: Path) -> None:
    following = deque[Command]([_says("three"), _says("four")])
    lanes = [Lane(deque([_says(n)]), tmp_path / f"{n}.log", following) for n in ("one", "two")]
    for lane in lanes:
        lane.start()
    for lane in lanes:
        lane.join()
    assert sum(len(lane.took) for lane in lanes) == 4 and not following
    assert [lane.log.read_text().split()[0] for lane in lanes if lane.log is not None] == ["one", "two"]


def test_a_lane_that_is_stopped_interrupts_its_command_and_begins_no_other(tmp_path: Path) -> None:
    patient = [sys.executable, "-c", "import signal; print('begun', flush=True); signal.pause()"]
    lane = Lane(deque([patient, _says("another")]), tmp_path / "log")
    lane.start()
    while "begun" not in ((tmp_path / "log").read_text() if (tmp_path / "log").exists() else ""):
        assert not lane.took
    lane.stop()
    lane.join()
    assert len(lane.took) == 1 and lane.worst
    assert "KeyboardInterrupt" in (tmp_path / "log").read_text() and "another" not in (tmp_path / "log").read_text()


@pytest.mark.parametrize(("limit", "outcome"), [(None, "1 passed"), (60, "1 passed"), (-1, "1 skipped")])
def test_a_test_that_would_begin_too_late_is_skipped_before_its_fixtures(
    limit: int | None, outcome: str, tmp_path: Path
) -> None:
    (tmp_path / "conftest.py").write_text("from tests.conftest import pytest_runtest_setup\n")
    (tmp_path / "test_it.py").write_text(
        "import pytest\n\n@pytest.fixture\ndef begun():\n    open('begun', 'w').close()\n\ndef test_it(begun): pass\n"
    )
    until = {} if limit is None else {"TIDEMARK_TEST_UNTIL": str(time.time() + limit)}
    env = {name: value for name, value in os.environ.items() if name != "TIDEMARK_TEST_UNTIL"} | until
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, str(tmp_path)]
    ended = subprocess.run(
        command, env={**env, "PYTHONPATH": f"{ROOT}:{ROOT}/include"}, cwd=tmp_path, capture_output=True, text=True
    )
    assert ended.returncode == 0 and outcome in ended.stdout, ended.stdout + ended.stderr
    assert (tmp_path / "begun").exists() == ("passed" in outcome)


def test_what_ci_sets_is_a_setting_or_belongs_to_tests() -> None:
    """Any other variable with the prefix is refused by every command, and so by most tests."""
    files = [ROOT / ".ci/run", ROOT / "Makefile", *(ROOT / ".github/workflows").glob("*.yml")]
    names = {name for file in files for name in re.findall(rf"\b{PREFIX}[A-Z_]+", file.read_text())}
    assert f"{TEST_PREFIX}MORE_MINUTES" in names
    known = {PREFIX + field.upper() for field in Settings.model_fields}
    assert [name for name in sorted(names) if name not in known and not name.startswith(TEST_PREFIX)] == []
