"""The lineage of a checkpoint as nodes and edges."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Plain = str | int | float | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageNode:
    """A node; columns count from 0, left to right. It links to an `asset`, a `task`, or the `run` of a `checkpoint`."""

    id: str
    kind: str
    column: int
    label: str
    second: str = ""
    facts: Mapping[str, Plain]
    asset: str | None = None
    task: str | None = None
    checkpoint: int | None = None
    run: str | None = None
    status: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageEdge:
    """An edge between the ids of two nodes."""

    begin: str
    end: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageGraph:
    """The lineage graph of one checkpoint, with its status and its run."""

    id: int
    name: str
    status: str
    run: str
    nodes: Sequence[LineageNode]
    edges: Sequence[LineageEdge]
