"""Keeps the book of a full sweep: one row per case, written to docs/benchmarks/faults.csv when the last one is over."""

import csv
import os
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path

import pytest

BOOK = Path(__file__).resolve().parents[2] / "docs" / "benchmarks" / "faults.csv"


@dataclass
class Case:
    """One kill and its repair.

    Attributes:
        victim: `client` or `server`.
        step: crash point.
        moment: `before` or `after` it.
        mode: which run was hit; see `test_sweep.MODES`.
        result: `passed`, `failed` or `skipped`.
        seconds: of everything: set-up of the line, the killed run, the re-runs and the comparison.
        code: the Git commit that was swept.
    """

    victim: str
    step: str
    moment: str
    mode: str
    result: str = "passed"
    seconds: float = 0.0
    code: str = ""


class Book:
    """A pytest plugin that collects cases."""

    def __init__(self) -> None:
        self.cases: dict[str, Case] = {}

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Iterator[None]:
        outcome = yield
        report, given = outcome.get_result(), getattr(item, "callspec", None)
        if given is None or "point" not in given.params:
            return
        victim = "client" if "client" in item.name else "server"
        step, _, moment = given.params["point"].rpartition(":")
        case = self.cases.setdefault(item.nodeid, Case(victim, step, moment, given.params.get("mode", "next")))
        case.seconds = round(case.seconds + report.duration, 1)
        if not report.passed:
            case.result = report.outcome

    def pytest_sessionfinish(self) -> None:
        from tests.faults.test_sweep import MODES, POINTS, SERVER_POINTS

        # A part of a sweep (-k, an interrupt) leaves the last whole one's book alone.
        code = subprocess.run(
            ["git", "describe", "--always", "--dirty"], cwd=BOOK.parent, capture_output=True, text=True, check=False
        )
        for case in self.cases.values():
            case.code = code.stdout.strip()
        if len(self.cases) == len(POINTS) * len(MODES) + len(SERVER_POINTS):
            write(self.cases.values(), BOOK)


def write(cases: Iterable[Case], path: Path) -> None:
    """Writes the rows, in the order in which the cases ran."""
    with path.open("w", newline="") as file:
        sheet = csv.writer(file, lineterminator="\n")
        sheet.writerow([f.name for f in fields(Case)])
        sheet.writerows([getattr(case, f.name) for f in fields(Case)] for case in cases)


def pytest_configure(config: pytest.Config) -> None:
    """Opens the book for the full cross only."""
    if os.environ.get("TIDEMARK_TEST_SWEEP") == "full":
        config.pluginmanager.register(Book(), "book-of-faults")
