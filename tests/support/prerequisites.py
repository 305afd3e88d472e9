"""What a machine may lack: a test that needs it is skipped; under `CI=true`, where nothing may be missing, it fails."""

import os
import shutil
from typing import NoReturn

import pytest

CHROMIUM = ("chromium", "google-chrome")


def in_ci() -> bool:
    """Whether what is missing is a failure: `CI=true`, as every CI sets it."""
    return os.environ.get("CI", "").lower() in ("1", "true", "yes")


def missing(what: str) -> NoReturn:
    """Ends a test that cannot run here.

    Args:
        what: is missing, and how to get it.
    """
    if in_ci():
        pytest.fail(f"CI lacks what this test needs: {what}", pytrace=False)
    pytest.skip(what)


def needs(present: bool, what: str) -> pytest.MarkDecorator:
    """The mark of tests that need something.

    Args:
        present: whether this machine has it.
        what: as `missing` says.
    """
    return pytest.mark.needs(present, what)


def needs_chromium() -> pytest.MarkDecorator:
    """The mark of tests that drive a browser."""
    return needs(any(map(shutil.which, CHROMIUM)), "no Chromium here: sudo apt-get install -y chromium")


def check(item: pytest.Item) -> None:
    """Ends a test whose mark names something that is missing; called ahead of its fixtures."""
    for mark in item.iter_markers("needs"):
        present, what = mark.args
        if not present:
            missing(what)
