"""What a rule looks at: one source file, its room, and what the rule reports."""

import ast
from dataclasses import dataclass
from functools import cache

from tests.rules.rooms import room_of


@dataclass(frozen=True, slots=True)
class Finding:
    """One violation: where, and what."""

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
        """The parsed text."""
        return _parsed(self.source)

    @property
    def folder(self) -> str:
        """The first step below `tidemark`, or the name of the folder outside it."""
        parts = self.name.split(".")
        return parts[1] if parts[0] == "tidemark" and len(parts) > 1 else parts[0]

    @property
    def room(self) -> str:
        """Its room; see `rooms`."""
        return room_of(self.name)


@cache
def _parsed(source: str) -> ast.Module:
    return ast.parse(source)


def dotted(node: ast.AST) -> str | None:
    """`a.b.c` for a name or an attribute of one, else None."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = dotted(node.value)
        return None if base is None else f"{base}.{node.attr}"
    return None
