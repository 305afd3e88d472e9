"""Optional prerequisites. A test that lacks one is skipped; with `CI=true`, which requires all of them, it fails.

`.ci/run` limits the time of `make test-more`: tests that would begin too late are skipped there.
"""

import os
import shutil
import time
from typing import NoReturn

import pytest

CHROMIUM = ("chromium", "google-chrome")


def in_ci() -> bool:
    """Whether a missing prerequisite is a failure: `CI` is set to a true value, as every CI does."""
    return os.environ.get("CI", "").lower() in ("1", "true", "yes")


def missing(what: str) -> NoReturn:
    """Ends a test that cannot run here.

    Args:
        what: the missing prerequisite, and how to install it.
    """
    if in_ci():
        pytest.fail(f"CI lacks what this test needs: {what}", pytrace=False)
    pytest.skip(what)


def needs(present: bool, what: str) -> pytest.MarkDecorator:
    """The mark of tests that need a prerequisite.

    Args:
        present: whether this machine has the prerequisite.
        what: as for `missing`.
    """
    return pytest.mark.needs(present, what)


def needs_chromium() -> pytest.MarkDecorator:
    """The mark of tests that drive a browser."""
    return needs(any(map(shutil.which, CHROMIUM)), "no Chromium here: sudo apt-get install -y chromium")


def check(item: pytest.Item) -> None:
    """Ends a test whose mark names a missing prerequisite, or that would begin too late. Called before its fixtures.

    `TIDEMARK_TEST_UNTIL` says how late, in seconds since 1970; by default no test is too late.
    """
    until = os.environ.get("TIDEMARK_TEST_UNTIL")
    if until and time.time() > float(until):
        pytest.skip("too late for .ci/run on this machine: `make test-more` by itself has no limit")
    for mark in item.iter_markers("needs"):
        present, what = mark.args
        if not present:
            missing(what)
