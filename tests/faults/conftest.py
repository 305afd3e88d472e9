"""Keeps the book of a full sweep: one row per case, in docs/benchmarks/faults.csv.

A part of the cross (`-k`) renews the rows of its own cases; each row says which commit it ran on.
"""

import csv
import fcntl
import os
import subprocess
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path

import pluggy
import pytest

from tests.support.killed_pipeline import SEED

BOOK = Path(__file__).resolve().parents[2] / "docs" / "benchmarks" / "faults.csv"


@dataclass
class KillCase:
    """One kill and its repair.

    Attributes:
        victim: `client` or `server`.
        step: crash point.
        moment: `before` or `after` it.
        mode: which run was hit; see `test_sweep.MODES`.
        result: `passed`, `failed` or `skipped`.
        seconds: of everything: set-up of the line, the killed run, the re-runs and the comparison.
        code: the Git commit that was swept.
        seed: of the records that were sent; empty where it was not recorded.
    """

    victim: str
    step: str
    moment: str
    mode: str
    result: str = "passed"
    seconds: float = 0.0
    code: str = ""
    seed: str = ""

    @property
    def key(self) -> tuple[str, ...]:
        """What is swept, whatever came of it."""
        return self.victim, self.step, self.moment, self.mode


class Book:
    """A pytest plugin that collects cases."""

    def __init__(self) -> None:
        self.cases: dict[str, KillCase] = {}
        self.code = swept_code()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pluggy.Result[pytest.TestReport], None]:
        outcome = yield
        report, given = outcome.get_result(), getattr(item, "callspec", None)
        if given is None or "point" not in given.params:
            return
        victim = "client" if "client" in item.name else "server"
        step, _, moment = given.params["point"].rpartition(":")
        case = self.cases.setdefault(item.nodeid, KillCase(victim, step, moment, given.params.get("mode", "next")))
        case.seconds = round(case.seconds + report.duration, 1)
        if not report.passed:
            case.result = report.outcome

    def pytest_sessionfinish(self) -> None:
        for case in self.cases.values():
            case.code, case.seed = self.code, str(SEED)
        if self.cases:
            with _alone():
                write(merged(read(BOOK), self.cases.values()), BOOK)


def swept_code(folder: Path = BOOK.parents[2], book: str = "docs/benchmarks/faults.csv") -> str:
    """The commit that is checked out; `-dirty` where a file differs, but for the book, which the other lane writes."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=False).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", f":(exclude){book}")
    return git("rev-parse", "--short", "HEAD") + ("-dirty" if changed else "")


@contextmanager
def _alone() -> Iterator[None]:
    """While the other lane does not read and write the book."""
    folder = os.open(BOOK.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def merged(older: Iterable[KillCase], newer: Iterable[KillCase]) -> list[KillCase]:
    """The cases of both, in the order of the older book; of a case that both have the newer row."""
    found = {case.key: case for case in older}
    found.update((case.key, case) for case in newer)
    return list(found.values())


def read(path: Path) -> list[KillCase]:
    """The rows of a book; none where there is none."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [KillCase(**{**row, "seconds": float(row["seconds"] or 0)}) for row in csv.DictReader(file)]  # type: ignore[arg-type]


def write(cases: Iterable[KillCase], path: Path) -> None:
    """Writes the rows, in order."""
    with path.open("w", newline="") as file:
        sheet = csv.writer(file, lineterminator="\n")
        sheet.writerow([f.name for f in fields(KillCase)])
        sheet.writerows([getattr(case, f.name) or "" for f in fields(KillCase)] for case in cases)


def pytest_configure(config: pytest.Config) -> None:
    """Opens the book for the full cross only."""
    if os.environ.get("TIDEMARK_TEST_SWEEP") == "full":
        config.pluginmanager.register(Book(), "book-of-faults")
