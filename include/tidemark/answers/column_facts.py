"""The lineage of columns: the datasets of a pipeline with their columns, and for one column both directions."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnName:
    """A column: the name that identifies it, its own name, and the expression that makes it, if it is no plain copy."""

    id: str
    name: str
    made: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetColumns:
    """A source, a state, an output, a sink or a publication, with its columns.

    `uid` is the operator that writes it, `topics` are those of a source, `place` is that of a table or a target.
    """

    kind: str
    name: str
    uid: str
    place: str
    topics: Sequence[str]
    columns: Sequence[ColumnName]


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnTransformation:
    """How a column influences another one, in OpenLineage's words; `possible` if a function may read any field."""

    type: str
    subtype: str
    possible: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedColumn:
    """A column before or after the chosen one, `distance` datasets away."""

    id: str
    kind: str
    dataset: str
    name: str
    distance: int
    transformations: Sequence[ColumnTransformation]


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnLinks:
    """A chosen column: the columns that it depends on are `upstream`, those that depend on it `downstream`."""

    id: str
    kind: str
    dataset: str
    name: str
    made: str
    upstream: Sequence[LinkedColumn]
    downstream: Sequence[LinkedColumn]


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnLineage:
    """The columns of a pipeline as a checkpoint recorded them, or as its file declares them.

    `recorded` is false for a checkpoint of a release that recorded no columns; it then has no datasets.
    """

    pipeline: str
    as_of: str
    checkpoint: int | None
    fingerprint: str
    recorded: bool
    datasets: Sequence[DatasetColumns]
    column: ColumnLinks | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnOrigins:
    """A column that is made, with the fields of records that make it, and those that decide which records count."""

    id: str
    kind: str
    made: str
    sources: Sequence[str]
    decided_by: Sequence[str]
