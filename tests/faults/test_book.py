"""The book of the sweep: what a part of the cross renews, and what it leaves alone."""

from pathlib import Path

from tests.faults.conftest import BOOK, Case, merged, read, write

ONE = Case("client", "plan", "before", "next", seconds=1.5, code="aaa")
TWO = Case("client", "plan", "after", "next", code="aaa")


def test_a_part_renews_its_own_rows_only(tmp_path: Path) -> None:
    write([ONE, TWO], tmp_path / "book.csv")
    again = Case("client", "plan", "after", "next", result="failed", seconds=2.0, code="bbb")
    new = Case("server", "seal", "after", "next", code="bbb")
    write(merged(read(tmp_path / "book.csv"), [again, new]), tmp_path / "book.csv")
    assert read(tmp_path / "book.csv") == [ONE, again, new]


def test_the_committed_book_reads_back_as_it_is(tmp_path: Path) -> None:
    write(read(BOOK), tmp_path / "book.csv")
    assert (tmp_path / "book.csv").read_text() == BOOK.read_text()
