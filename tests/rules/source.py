"""The input and the output of a rule: a source file with its room, and a finding."""

import ast
from dataclasses import dataclass
from functools import cache

from tests.rules.rooms import room_of


@dataclass(frozen=True, slots=True)
class Finding:
    """One violation of a rule: its line and a description."""

    line: int
    what: str


@dataclass(frozen=True, slots=True)
class Module:
    """One source file: its dotted name (`tidemark.context`, `dags.flights`) and its text."""

    name: str
    source: str
    is_package: bool = False

    @property
    def tree(self) -> ast.Module:
        """The syntax tree of the text."""
        return _parsed(self.source)

    @property
    def folder(self) -> str:
        """The folder or module directly below `tidemark`; outside `tidemark`, the top-level folder."""
        parts = self.name.split(".")
        return parts[1] if parts[0] == "tidemark" and len(parts) > 1 else parts[0]

    @property
    def room(self) -> str:
        """The room of the module; see `rooms`."""
        return room_of(self.name)


@cache
def _parsed(source: str) -> ast.Module:
    return ast.parse(source)


def dotted(node: ast.AST) -> str | None:
    """The dotted name, such as `a.b.c`, of a name or attribute expression; None for any other expression."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = dotted(node.value)
        return None if base is None else f"{base}.{node.attr}"
    return None
