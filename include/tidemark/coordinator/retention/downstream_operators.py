"""Operators downstream of the one that a key is erased from: they have processed its records, too.

A downstream operator with the same key columns, by name and type, holds the key under the same values, so the key is
erased there as well. If its key columns include these and others, you must name the keys that contain it. For any other
operator it is unknown which of its rows came from the key, because its keys contain other values.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tidemark.coordinator.retention.erasure_residue import count_rows
from tidemark.coordinator.retention.erasure_search import KeyOccurrences, Searcher, handles_of
from tidemark.declare.pipeline import Pipeline
from tidemark.model.schema.operator_schema import OperatorSchema


@dataclass(frozen=True, slots=True, kw_only=True)
class Chained:
    """Operators downstream of one, directly or through others, as they are declared now.

    Attributes:
        same: operators with the same key columns, in any order.
        part: operators with these key columns and others, with all of their key columns.
        other: operators with other key columns, with these columns.
    """

    same: tuple[str, ...]
    part: Mapping[str, tuple[str, ...]]
    other: Mapping[str, tuple[str, ...]]

    @classmethod
    def behind(cls, pipeline: Pipeline, schema: OperatorSchema) -> "Chained":
        """The operators downstream of the operator of a stored schema."""
        wanted, declared = _columns(schema), pipeline.schemas()
        found = {uid: _columns(declared[uid]) for uid in dict.fromkeys(_fed(pipeline, schema.uid))}
        return cls(
            same=tuple(uid for uid, its in found.items() if its == wanted),
            part={uid: tuple(its) for uid, its in found.items() if its.items() > wanted.items()},
            other={uid: tuple(its) for uid, its in found.items() if not its.items() >= wanted.items()},
        )


def rows_in_part(
    found: KeyOccurrences, searcher: Searcher, chained: Chained, columns: Mapping[str, object]
) -> dict[str, int]:
    """Counts rows whose keys contain the key, per operator that has it as a part of its keys, over all restore points.

    Raises:
        StoreError: a file cannot be read.
    """
    rows = {}
    for uid in chained.part:
        handles = [h for entry in found.entries for name, h in handles_of(entry) if name == uid]
        rows[uid] = sum(count_rows(searcher, handles, columns).values())
    return rows


def in_order(schema: OperatorSchema, columns: Mapping[str, str]) -> Sequence[str]:
    """The texts of a key, in the order of another operator's columns."""
    return [columns[key.name] for key in schema.keys]


def _fed(pipeline: Pipeline, uid: str) -> Iterator[str]:
    outputs = [output.uid for o in pipeline.operators if o.uid == uid for output in o.outputs]
    for reader in (reader for output in outputs for reader in pipeline.readers(output)):
        yield reader
        yield from _fed(pipeline, reader)


def _columns(schema: OperatorSchema) -> dict[str, str]:
    # Decimals of different scales are different texts.
    return {key.name: key.type.sql if key.type.kind == "decimal" else key.type.kind for key in schema.own_keys}
