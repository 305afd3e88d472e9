"""The book of the sweep: what a part of the cross renews, and what it leaves alone."""

import subprocess
from pathlib import Path

from tests.faults.conftest import BOOK, KillCase, merged, read, swept_code, write

ONE = KillCase("client", "plan", "before", "next", seconds=1.5, code="aaa")
TWO = KillCase("client", "plan", "after", "next", code="aaa")


def test_a_part_renews_its_own_rows_only(tmp_path: Path) -> None:
    write([ONE, TWO], tmp_path / "book.csv")
    again = KillCase("client", "plan", "after", "next", result="failed", seconds=2.0, code="bbb")
    new = KillCase("server", "seal", "after", "next", code="bbb")
    write(merged(read(tmp_path / "book.csv"), [again, new]), tmp_path / "book.csv")
    assert read(tmp_path / "book.csv") == [ONE, again, new]


def test_the_committed_book_reads_back_as_it_is(tmp_path: Path) -> None:
    write(read(BOOK), tmp_path / "book.csv")
    assert (tmp_path / "book.csv").read_text() == BOOK.read_text()


def test_rows_name_the_commit_and_what_another_lane_has_written_does_not_count(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@example.com", *words]
        return subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "-q")
    for name in ("book.csv", "code.py"):
        (tmp_path / name).write_text("1")
    git("add", ".")
    git("commit", "-qm", "one")
    commit = git("rev-parse", "--short", "HEAD")
    assert swept_code(tmp_path, "book.csv") == commit
    (tmp_path / "book.csv").write_text("2")
    assert swept_code(tmp_path, "book.csv") == commit
    (tmp_path / "code.py").write_text("2")
    assert swept_code(tmp_path, "book.csv") == f"{commit}-dirty"
