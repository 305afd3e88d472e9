"""What runs in Airflow's tasks keeps nothing in the home of this machine that a next task elsewhere would need."""

import ast
from pathlib import Path

import pytest

from tests.support.compose import ROOT

IN_TASKS = (
    "include/tidemark/airflow",
    "include/tidemark/operations",
    "include/tidemark/web",
    "include/tidemark/engine",
    "include/tidemark/jobs",
)
"""Where tasks and pages go through; below them there are no settings."""
LOST_WITHOUT_HARM = {
    "include/tidemark/airflow/connections.py": ["recorded_service(settings.home, service) is None"],
    "include/tidemark/context.py": [
        "LocalCache(self.settings.home / 'cache' / sha256_of(str(self.settings.warehouse).encode())[:16])"
    ],
    "include/tidemark/environment.py": ["self._settings.home / 'buckets' / named[:16]"],
}
"""Whether the stack of this host runs; a cache that may go at any time (adr/0017); locks against others of this host,
and scratch of the work that runs on it."""

FILES = sorted(
    [
        *(path for folder in IN_TASKS for path in (ROOT / folder).rglob("*.py")),
        *(ROOT / name for name in LOST_WITHOUT_HARM),
    ]
)


def _homes(text: str) -> list[str]:
    """What is made of the home that settings are asked for: the statement's value."""
    returned = (n.value for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Return | ast.Assign | ast.Expr))
    return [ast.unparse(value) for value in returned if value is not None and any(map(_is_home, ast.walk(value)))]


def _is_home(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "home" and ast.unparse(node.value).endswith("settings")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_task_keeps_in_the_home_what_others_need(path: Path) -> None:
    text = path.read_text()
    assert _homes(text) == LOST_WITHOUT_HARM.get(str(path.relative_to(ROOT)), [])
    assert len(_homes(text)) == sum(map(_is_home, ast.walk(ast.parse(text)))), "the home is asked for elsewhere too"


def test_one_that_would_is_found() -> None:
    found = _homes("path = self._settings.home / 'state.json'\nother = java.home\n")
    assert found == ["self._settings.home / 'state.json'"]
