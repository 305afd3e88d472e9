"""What counts as other code: all of its own module that a function uses, and nothing that differs between processes."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tidemark.model.core.canonical import code_text

ROOT = Path(__file__).resolve().parents[2]
MODULE = """
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from math import floor

LIMIT = 30
PAUSE = timedelta(minutes=5)
RATES = {"a": 1, "b": (2, 3)}
WORDS = {"late", "later", "latest"}
UNUSED = 1
NOISE = object()

@dataclass
class Note:
    n: int

def rounded(x):
    return floor(x) + 1

def twice(x):
    return twice(x - 1) if x > 9 else 2 * rounded(x)

def made(bonus):
    def told(x):
        return x + bonus
    return told

extra = made(7)

def follow(key, visits, state, by=3, *, most=4):
    def inner():
        return [RATES["a"] for v in visits if v > LIMIT]
    for _ in inner():
        yield Note(twice(by) + most, PAUSE, NOISE, "late" in WORDS, extra(1))
"""


def text(source: str) -> str:
    space: dict[str, Any] = {"__name__": "pipelines.visits"}
    exec(compile(source, "visits.py", "exec"), space)  # noqa: S102  (a module of the test's own)
    return code_text(space["follow"])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("LIMIT = 30", "LIMIT = 45"),
        ("minutes=5", "minutes=6"),
        ("(2, 3)", "(2, 4)"),
        ('"latest"}', '"last"}'),
        ("floor(x) + 1", "floor(x) + 2"),
        ("2 * rounded(x)", "3 * rounded(x)"),
        ("by=3", "by=2"),
        ("most=4", "most=5"),
        ("made(7)", "made(8)"),
        ("v > LIMIT", "v >= LIMIT"),
    ],
)
def test_what_decides_a_result_makes_other_code(old: str, new: str) -> None:
    assert MODULE.count(old) == 1
    assert text(MODULE.replace(old, new)) != text(MODULE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("UNUSED = 1", "UNUSED = 2"),
        ("NOISE = object()", "NOISE = object() or 1"),
        ("LIMIT = 30", "LIMIT = 30  # minutes"),
    ],
)
def test_what_decides_none_does_not(old: str, new: str) -> None:
    assert MODULE.count(old) == 1
    assert text(MODULE.replace(old, new)) == text(MODULE)


def test_every_process_says_the_same(tmp_path: Path) -> None:
    (tmp_path / "told.py").write_text("from tests.unit.test_fingerprints import MODULE, text\nprint(text(MODULE))\n")
    told = {
        subprocess.run(
            [sys.executable, str(tmp_path / "told.py")],
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": f"{ROOT / 'include'}{os.pathsep}{ROOT}"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2", "3")
    }
    assert told == {text(MODULE)}
