"""What the lineage of columns needs of a declaration in addition to its stored schemas; plans record it (adr/0075)."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tidemark.model.core.types import FieldType

EVERY_COLUMN = "*"
"""In `reads`, the fields that a function uses for every column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceColumns:
    """The fields of the records of a source, or of the rows of a broadcast state's table.

    Attributes:
        fields: paths of the fields, in order; a nested dataclass has a path for each of its fields.
        event_time: path of the field with the event time; empty = Kafka's timestamp, if no field has it.
        table: of a broadcast state that copies a Delta table its place; empty = topics, which the plan names.
    """

    fields: tuple[str, ...]
    event_time: str
    table: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputColumns:
    """The columns of the rows of an output, and the name of its sink; empty without one."""

    columns: tuple[str, ...]
    sink: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorColumns:
    """What an operator reads and emits.

    Attributes:
        inputs: the sources and outputs whose records it gets.
        broadcasts: the broadcast states that its function may look up; joins of a fold are in its schema.
        keys: of an operator with several inputs the key fields of each, in the order of its key columns.
        reads: per column the fields that make it, by the name of the input or of the broadcast state; `*` = of every
            column, and whether there is a row. A join names all its columns. A column of a function may be made from
            any field if neither it nor `*` is named.
        by_event_time: whether its function gets records, or timers, in the order of event time.
        outputs: the columns of each output, by its uid.
    """

    inputs: tuple[str, ...]
    broadcasts: tuple[str, ...]
    keys: Mapping[str, tuple[str, ...]]
    reads: Mapping[str, Mapping[str, tuple[str, ...]]]
    by_event_time: bool
    outputs: Mapping[str, OutputColumns]

    def reads_of(self, column: str) -> Mapping[str, tuple[str, ...]] | None:
        """Returns the fields that make a column, by input; None = any field may."""
        named = [self.reads[name] for name in (column, EVERY_COLUMN) if name in self.reads]
        return merged(named) if named else None

    def reads_of_rows(self, columns: Iterable[str]) -> Mapping[str, tuple[str, ...]] | None:
        """Returns the fields that decide whether there is a row with these columns, by input; None = any field may.

        These are the fields of every column, or without them those of any.
        """
        if EVERY_COLUMN in self.reads:
            return self.reads[EVERY_COLUMN]
        found = [self.reads_of(column) for column in columns]
        known = [reads for reads in found if reads is not None]
        return merged(known) if len(known) == len(found) > 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedColumns:
    """A publication: the operator whose state it publishes, the kind of its target, and the place."""

    uid: str
    kind: str
    place: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredColumns:
    """The declaration of a pipeline, as far as the lineage of its columns needs it and its schemas do not have it.

    Attributes:
        sources: by name; those of broadcast states by uid.
        operators: by uid, without broadcast states.
        publications: by name.
    """

    sources: Mapping[str, SourceColumns]
    operators: Mapping[str, OperatorColumns]
    publications: Mapping[str, PublishedColumns]


def merged(parts: list[Mapping[str, tuple[str, ...]]]) -> dict[str, tuple[str, ...]]:
    """Returns the fields of several mappings, each once."""
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: tuple(dict.fromkeys(path for part in parts for path in part.get(name, ()))) for name in names}


def leaf_paths(of: FieldType, above: str = "") -> Iterator[str]:
    """Yields the paths of the fields of a struct; of a nested one those of its own fields."""
    for name, inner in of.fields:
        if inner.fields:
            yield from leaf_paths(inner, f"{above}{name}.")
        else:
            yield above + name
