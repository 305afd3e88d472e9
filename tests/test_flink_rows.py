"""`docs/flink-rows.md` says what is tested where: rows that must be there, and tests that must exist."""

import ast
import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/flink-rows.md"


def _words(text: str) -> list[str]:
    return re.findall(r"\S+", text)


MUST = _words("""
    1.1-1 1.1-2 1.1-3 1.1-4 1.2 1.3
    A1 A2 A3 A4 A5 A6 A7 A11 A14
    B1 B2 B3 B4 B5 B6 B8 B9
    C1 C2 C4 C6 C7 C9 C10 C11
    D3 D4 D5 D6 D7 D8 D9 D10 D15
    E1 E2 E3 E4 E5 E6 E7 E8 E9 E11 E12 E14 E15 E16
    F1 F2 F3 F4 F5
    G1 G2 G3 G4 G5 G6 G7 G8 G9 G10 G11 G12 G13 G14 G16
    H1 H2 H3 H5 H6 H7
    I1 I2 I3 I4 I5 I6 I7 I8
    J1 J5 J6 J7 J8 J9 J10 J11 J12 J14 J16 J17
    K1 K2 K3 K5 K6 K9 K10
    L1 L2 L3 L4
    N1 N2 N3
    P1 P2 P3 P4 P5 P6 P12 Q1 Q2 Q3 Q4 Q5 Q6 Q7 Q8 Q9 Q10
""")
"""Rows that need a test."""
MUST += ["invariant I4", "invariant I5", "fault 24", "fault 34", "fault 35", "fault 39"]
SHOULD = _words("A9 A10 B7 C8 D20 E13 F11 J2 K4 K7 K8")
"""Rows that need a test, or a word on why there is none."""
MEASURED = _words("T1 T2 T4")
"""Rows that need a page of `docs/benchmarks`."""
OPEN: set[str] = set()
"""Rows without a test so far; the page says why. Take one out when its test is there."""
NAMED = re.compile(r"`([\w/.-]+\.py)::(\w+)(?:::(\w+))?`")
NONE = "–"


@functools.cache
def rows() -> dict[str, tuple[str, ...]]:
    """The cells behind the id, per row of the page's tables."""
    found: dict[str, tuple[str, ...]] = {}
    for line in PAGE.read_text().splitlines():
        row, *cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        if line.startswith("|") and re.fullmatch(r"[A-Z]\d+|1\.1-\d|1\.\d|invariant I\d|fault \d+", row):
            assert row not in found, f"{row} has two rows"
            found[row] = tuple(cells)
    return found


@functools.cache
def functions(path: Path) -> dict[str, list[str]]:
    """Test functions of a file, those in a class as `Class::function`, with their decorators."""
    found = {}
    for node in ast.parse(path.read_text()).body:
        for inner in node.body if isinstance(node, ast.ClassDef) else (node,):
            if isinstance(inner, ast.FunctionDef):
                name = f"{node.name}::{inner.name}" if inner is not node else inner.name
                found[name] = [ast.unparse(d) for d in inner.decorator_list]
    return found


def complaint(path: str, name: str) -> str | None:
    """Why a named test is none, or None."""
    file = ROOT / "tests" / path
    if not file.is_file():
        return f"there is no tests/{path}"
    if not name.rpartition("::")[2].startswith("test_"):
        return f"{name} is no test"
    if name not in functions(file):
        return f"tests/{path} has no {name}"
    if any("mark.skip" in d or "xfail" in d for d in functions(file)[name]):
        return f"{name} of tests/{path} is not run"
    return None


def named_by(row: str) -> list[tuple[str, str]]:
    return [(path, "::".join(filter(None, names))) for path, *names in NAMED.findall(rows()[row][-1])]


def test_every_row_that_is_asked_for_is_there_and_is_full() -> None:
    assert sorted({*MUST, *SHOULD, *MEASURED} - set(rows())) == []
    assert {row for row, cells in rows().items() if len(cells) != 3 or not all(cells)} == set()


@pytest.mark.parametrize("row", rows())
def test_the_tests_of_a_row_exist(row: str) -> None:
    cell = rows()[row][-1]
    assert cell.count("::") == len(named_by(row)), f"{row} names something that is no `path::function`"
    assert [c for test in named_by(row) if (c := complaint(*test))] == []


@pytest.mark.parametrize("row", [*MUST, *SHOULD])
def test_a_row_has_a_test_or_is_known_to_have_none(row: str) -> None:
    _, here, tested = rows()[row]
    if row not in OPEN:
        assert named_by(row), f"{row} has no test: name one, or write one"
        return
    assert tested == NONE, f"{row} has a test now: take it out of OPEN"
    assert "**not yet**" in here or "does not apply" in here, f"say of {row} why it has no test"


def test_every_cell_of_the_table_of_capabilities_names_a_test_that_exists() -> None:
    table = [line for line in (PAGE.parent / "capabilities.md").read_text().splitlines() if line.startswith("|")]
    assert len(table) > 12
    for line in table[2:]:
        _, *cells = line.strip("|").split(" | ")
        assert len(cells) == 3, line
        for cell in cells:
            named = [(path, "::".join(filter(None, names))) for path, *names in NAMED.findall(cell)]
            assert named, f"no test: {cell}"
            assert [c for test in named if (c := complaint(*test))] == []


@pytest.mark.parametrize("row", MEASURED)
def test_a_target_names_its_figures(row: str) -> None:
    pages = re.findall(r"\]\((benchmarks/[\w-]+\.md)\)", rows()[row][-1])
    assert pages and all((PAGE.parent / page).is_file() for page in pages)


@pytest.mark.parametrize(
    ("path", "name", "words"),
    [
        ("nowhere/test_it.py", "test_it", "there is no"),
        ("test_flink_rows.py", "test_it_all", "has no test_it_all"),
        ("test_flink_rows.py", "rows", "is no test"),
        ("golden/write.py", "test_write", "is not run"),
    ],
)
def test_the_complaint_about_a_test_says_what_is_wrong(path: str, name: str, words: str) -> None:
    assert words in (complaint(path, name) or "")


def test_a_test_in_a_class_is_found() -> None:
    assert complaint("contract/test_foreign_tables.py", "TestDelta::test_a_missing_column_is_named") is None
