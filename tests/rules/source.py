"""What a rule looks at: one source file, its place among the floors, and what it reports."""

import ast
from dataclasses import dataclass
from functools import cache

FLOORS: dict[str, int] = {
    "errors": 0,
    "redaction": 0,
    "state": 0,
    "operator_state": 0,
    "pipeline": 0,
    "operators": 0,
    "sources": 0,
    "fingerprints": 0,
    "formats": 0,
    "retention": 0,
    "sinks": 0,
    "model": 0,
    "ports": 1,
    "processing": 1,
    "coordinator": 2,
    "engine": 3,
    "adapters": 3,
    "kafka_settings": 4,
    "s3_settings": 4,
    "settings": 4,
    "context": 4,
    "lazy": 4,
    "operations": 4,
    "system": 4,
    "telemetry": 4,
    "warehouse_location": 4,
    "web": 4,
    "testing": 4,
    "reading": 4,
    "discovery": 4,
    "faults": 4,
    "airflow": 5,
    "cli": 5,
    "stack": 5,
}
"""Floor of every folder or module directly below `tidemark`; a new one is entered here, or its test fails."""

ROOMS: dict[str, tuple[str, ...]] = {"coordinator": ("records", "plans", "checkpoints", "recovery", "retention")}
"""Rooms of a folder that is large enough to have floors of its own, the lowest first."""

ENTRY_FLOOR, AUTHOR_FLOOR = 5, 6
UNDECLARED = -1


@dataclass(frozen=True, slots=True)
class Finding:
    """One violation: where, and what."""

    line: int
    what: str


@dataclass(frozen=True, slots=True)
class Module:
    """One source file: its dotted name (`tidemark.engine.job`, `pipelines.flights`, `dags.flights`) and its text."""

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
    def floor(self) -> int:
        """Its floor; UNDECLARED where no one has said."""
        return floor_of(self.name)


@cache
def _parsed(source: str) -> ast.Module:
    return ast.parse(source)


def floor_of(name: str) -> int:
    """The floor of a dotted name of ours."""
    parts = name.split(".")
    if parts[0] in ("pipelines", "dags"):
        return AUTHOR_FLOOR
    if parts[0] in ("spark_jobs", "plugins") or len(parts) == 1:
        return ENTRY_FLOOR
    return FLOORS.get(parts[1], UNDECLARED)


def dotted(node: ast.AST) -> str | None:
    """`a.b.c` for a name or an attribute of one, else None."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = dotted(node.value)
        return None if base is None else f"{base}.{node.attr}"
    return None
