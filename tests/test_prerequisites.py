"""A test whose prerequisite is missing is skipped on your machine and fails in CI; no other test is skipped."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.bug_finds import violations

ROOT = Path(__file__).parents[1]
BY_HAND = {"tests/golden/write.py"}
"""Programs that you run by hand, written as tests so that they can use fixtures."""
SKIPS = re.compile(r"mark\.skip|pytest\.skip|importorskip|unittest\.skip")
TESTS = """
from tests.conftest import pytest_runtest_setup
from tests.support.prerequisites import missing, needs

@needs(False, "no browser here")
def test_marked(): ...

@needs(True, "all is there")
def test_equipped(): ...

def test_late():
    missing("no mount here")
"""


@pytest.mark.parametrize(("ci", "ended"), [("", "1 passed, 2 skipped"), ("true", "1 failed, 1 passed")])
def test_what_is_missing_is_skipped_at_home_and_fails_in_ci(ci: str, ended: str, tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("from tests.conftest import pytest_runtest_setup\n")
    (tmp_path / "test_some.py").write_text(TESTS)
    path = os.pathsep.join([str(ROOT), str(ROOT / "include")])
    command = [sys.executable, "-m", "pytest", "-q", "-rsf", "-p", "no:cacheprovider", "-c", os.devnull, str(tmp_path)]
    env = os.environ | {"CI": ci, "PYTHONPATH": path}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert ended in done.stdout, done.stdout
    assert ("1 error" in done.stdout) == bool(ci), "a mark ends its test before any fixture runs"
    assert "no browser here" in done.stdout
    assert "no mount here" in done.stdout


def test_every_skip_goes_through_prerequisites() -> None:
    allowed = BY_HAND | {"tests/support/prerequisites.py", "tests/test_prerequisites.py", "tests/test_flink_rows.py"}
    files = {str(file.relative_to(ROOT)): file for file in (ROOT / "tests").rglob("*.py")}
    assert [name for name, file in files.items() if name not in allowed and SKIPS.search(file.read_text())] == []


def test_a_slip_of_a_planted_bug_is_no_find() -> None:
    slips = ["TypeError escaped: TypeError('adopted() takes 4 positional arguments')", "AttributeError escaped: x"]
    slips.append("I10: a plain re-run failed: NameError(\"name 'slot' is not defined\")")
    finds = ["I5: chk-4 is kept, and not readable any more", "StoreError escaped: StoreError('gone')"]
    assert violations([*slips, *finds]) == finds
    assert violations(slips) == []
