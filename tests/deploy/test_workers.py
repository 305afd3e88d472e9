"""What runs in Airflow's tasks keeps nothing in the home of this machine: the next task may run on another one."""

import ast
from pathlib import Path

import pytest

from tests.deploy.compose import ROOT

IN_TASKS = ("include/tidemark/airflow", "include/tidemark/wiring", "include/tidemark/engine", "spark_jobs", "plugins")
"""Where tasks and pages go through; below them there are no settings."""


FILES = sorted(path for folder in IN_TASKS for path in (ROOT / folder).rglob("*.py"))


def _homes(text: str) -> list[int]:
    """Lines that ask settings for the home."""
    attributes = (n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Attribute) and n.attr == "home")
    return [n.lineno for n in attributes if ast.unparse(n.value).endswith("settings")]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_task_asks_for_the_home(path: Path) -> None:
    assert _homes(path.read_text()) == []


def test_one_that_would_is_found() -> None:
    assert _homes("path = self._settings.home / 'state.json'\nother = java.home\n") == [1]
