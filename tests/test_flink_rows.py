"""Checks `docs/flink-rows.md`, which lists the tests of each feature: all rows are present, and their tests exist.

`docs/flink-rows.csv` lists the required rows. If the document that they were taken from is available, the two lists
must agree.
"""

import ast
import csv
import functools
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/flink-rows.md"
SOURCE = ROOT.parent / "shared/flink.md"
"""The document that the committed list was taken from; it is not part of the repository."""


@dataclass(frozen=True)
class Feature:
    """A required row of the page.

    Attributes:
        mark: `M` must, `S` should, `+` better than Flink, `none` not applicable; empty if the list has no marks.
        name: the feature, in the words of the page.
    """

    mark: str
    name: str


def committed() -> dict[str, Feature]:
    """The required rows, from the committed list."""
    with (ROOT / "docs/flink-rows.csv").open(newline="") as file:
        return {line["row"]: Feature(line["mark"], line["feature"]) for line in csv.DictReader(file)}


def listed(text: str) -> dict[str, str]:
    """The rows of the original document, with their marks."""
    layout, _, _ = text.partition("### 1.2")
    found = {f"1.1-{n}": "M" for n in re.findall(r"^(\d)\. \*\*", layout, re.MULTILINE)} | {"1.2": "M", "1.3": "M"}
    for row, cells in re.findall(r"^\| ([A-Z]\d+) \|(.*)\|$", text, re.MULTILINE):
        marked = re.fullmatch(r"(M|S)(\+?)(?: \(.*\))?", cells.rpartition("|")[2].strip())
        found[row] = marked[1] + marked[2] if marked else ""
    found |= dict.fromkeys(re.findall(r"\*\*(N\d+)\*\*", text), "")
    _, _, behind = text.partition("\n## 18")
    without, _, _ = behind.partition("**Where Flink wins")
    bold = " ".join(re.findall(r"\*\*([^*]+)\*\*", without))
    return found | {row: "none" for row in re.findall(r"\b[A-Z]\d+\b", bold) if row not in found}


LISTED = committed()
NOWHERE = [row for row, feature in LISTED.items() if feature.mark == "none"]
"""Rows that do not apply: the page omits them, and the guarantees explain why."""
MEASURED = [row for row in LISTED if row.startswith("T")]
"""Rows that need a page of `docs/benchmarks`."""
TESTED = [row for row in LISTED if row not in (*NOWHERE, *MEASURED)]
"""Rows that need a test."""
TESTED += ["invariant I4", "invariant I5", "fault 24", "fault 31", "fault 34", "fault 35", "fault 39"]
OPEN = {"D21", "F13", "J15"}
"""Rows without a test, because the feature is missing, as the page says. Remove a row once the feature exists."""
NAMED = re.compile(r"`([\w/.-]+\.py)::(\w+)(?:::(\w+))?`")
NONE = "–"


@functools.cache
def rows() -> dict[str, tuple[str, ...]]:
    """The cells after the id, for each row of the page's tables."""
    found: dict[str, tuple[str, ...]] = {}
    for line in PAGE.read_text().splitlines():
        row, *cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        if line.startswith("|") and re.fullmatch(r"[A-Z]\d+|1\.1-\d|1\.\d|invariant I\d|fault \d+", row):
            assert row not in found, f"{row} has two rows"
            found[row] = tuple(cells)
    return found


@functools.cache
def functions(path: Path) -> dict[str, list[str]]:
    """The test functions of a file and their decorators; a method is named `Class::function`."""
    found = {}
    for node in ast.parse(path.read_text()).body:
        for inner in node.body if isinstance(node, ast.ClassDef) else (node,):
            if isinstance(inner, ast.FunctionDef):
                name = f"{node.name}::{inner.name}" if isinstance(node, ast.ClassDef) else inner.name
                found[name] = [ast.unparse(d) for d in inner.decorator_list]
    return found


def complaint(path: str, name: str) -> str | None:
    """The reason why a name does not denote a running test; None if it does."""
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


def test_the_committed_list_is_that_of_the_document_it_was_taken_from() -> None:
    if not SOURCE.is_file():
        pytest.skip("the original document is available only on the project's own machines")
    assert {row: feature.mark for row, feature in LISTED.items()} == listed(SOURCE.read_text())


def test_a_row_that_the_document_adds_is_noticed() -> None:
    text = "1. **One**\n### 1.2\n| A1 | x | y | M+ |\n| F1 | x | y | M (result) |\n| T1 | x | y |\n- **N1** no\n"
    text += "\n## 18\n- **D5, n > 1** no\n- **A1** no\n**Where Flink wins** Z9"
    marks = {"1.1-1": "M", "1.2": "M", "1.3": "M", "A1": "M+", "F1": "M", "T1": "", "N1": "", "D5": "none"}
    assert listed(text) == marks


def test_every_row_that_is_asked_for_is_there_and_is_full() -> None:
    assert sorted({*TESTED, *MEASURED} - set(rows())) == [], "add the rows, or remove them from the committed list"
    assert sorted(set(rows()) - {*TESTED, *MEASURED}) == [], "the committed list lacks these rows of the page"
    assert {row for row, cells in rows().items() if len(cells) != 3 or not all(cells)} == set()


def test_a_row_is_about_the_feature_of_the_list() -> None:
    strangers = [r for r in {*LISTED} - {*NOWHERE} if LISTED[r].name not in rows()[r][0].replace("`", "")]
    assert strangers == [], "docs/flink-rows.csv and the page name the feature differently"


def test_what_cannot_apply_is_explained_by_the_guarantees() -> None:
    _, _, table = (PAGE.parent / "guarantees.md").read_text().partition("## What has no meaning here")
    explained = {row for ids in re.findall(r"^\| ([A-Z]\d.*?) \|", table, re.MULTILINE) for row in ids.split(", ")}
    assert sorted({*NOWHERE} - explained) == []


@pytest.mark.parametrize("row", rows())
def test_the_tests_of_a_row_exist(row: str) -> None:
    cell = rows()[row][-1]
    assert cell.count("::") == len(named_by(row)), f"{row} has a reference that is not `path::function`"
    assert [c for test in named_by(row) if (c := complaint(*test))] == []


@pytest.mark.parametrize("row", TESTED)
def test_a_row_has_a_test_or_is_known_to_have_none(row: str) -> None:
    _, here, tested = rows()[row]
    if row not in OPEN:
        assert named_by(row), f"{row} has no test: name or write one"
        return
    assert tested == NONE, f"{row} has a test now: remove it from OPEN"
    assert "**not yet**" in here, f"mark {row} as **not yet**"
    assert not LISTED[row].mark.startswith("M"), f"{row} is a must"


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
