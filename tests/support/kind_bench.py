"""Compares the twin and DuckDB with an oracle for one kind of state, on random records, barriers and compactions."""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Annotated, Any

import pyarrow as pa

from tidemark.declare.operators import bind_field
from tidemark.model.core.ttl import Now
from tidemark.model.core.types import FieldType, Precision, field_type
from tidemark.model.kinds.base.kind import StateDescriptor, annotate
from tidemark.model.schema.operator_schema import KeyColumn, OperatorSchema, StoredField, run_columns
from tidemark.readers.duckdb_session import QueryRunner
from tidemark.sql.resolve import compacted_sql, resolving_sql
from tidemark.tables.delta_tables import arrow_schema
from tidemark.testing.twin.fold import Decoded, fold
from tidemark.testing.twin.merge import compact_rows, resolve_rows

START = datetime(2020, 1, 1, tzinfo=UTC)
KEYS = ("a", "b", "ü")
MONEY = Annotated[Decimal, Precision(12, 2)]
RECORD = FieldType(
    "struct",
    fields=(
        ("key", FieldType("str")),
        ("n", FieldType("int", nullable=True)),
        ("x", FieldType("float", nullable=True)),
        ("price", field_type(MONEY | None, "price")),
        ("text", FieldType("str", nullable=True)),
        ("rank", FieldType("int", nullable=True)),
    ),
)
Oracle = Callable[[Sequence[Decoded]], Any]
"""Computes the value of a field from records in the order of (event time, topic, partition, offset)."""


@dataclass(frozen=True)
class KindCase:
    """A declaration of a field with this kind.

    Attributes:
        declared: the descriptor, as an author writes it.
        hint: the annotation of the field.
        oracle: computes the value by brute force, without product code.
        is_close: whether floats need to be only nearly equal.
    """

    declared: object
    hint: Any
    oracle: Oracle
    is_close: bool = False

    @property
    def stored(self) -> StoredField:
        """The field, bound to the record type of the bench."""
        assert isinstance(self.declared, StateDescriptor), "a value to the type checker, a declaration at run time"
        named = annotate(self.declared, "f", field_type(self.hint, "f"), "f")
        return bind_field("f", named, RECORD)

    @property
    def schema(self) -> OperatorSchema:
        """The schema of a fold with only this field."""
        return OperatorSchema(uid="u", keys=(KeyColumn("key", "key", FieldType("str")),), fields=(self.stored,))


def known(records: Sequence[Decoded], name: str) -> list[Any]:
    """The values of a field that are not null."""
    return [r.fields[name] for r in records if r.fields[name] is not None]


def random_records(chance: random.Random, count: int) -> list[Decoded]:
    """Random records with nulls, equal event times and equal ranks; offsets ascend in each partition."""
    ends: dict[tuple[str, int], int] = {}
    made = []
    for _ in range(count):
        place = (chance.choice(("t", "s")), chance.randrange(2))
        ends[place] = ends.get(place, -1) + 1
        fields = {
            "key": chance.choice(KEYS),
            "n": chance.choice([None, *range(-3, 4), 2**40]),
            "x": chance.choice([None, 0.5, -1.25, 1e9 + chance.random(), chance.gauss(0, 1)]),
            "price": chance.choice([None, Decimal("0.10"), Decimal("-12.34"), Decimal("9999999.99")]),
            "text": chance.choice([None, "", "a", "é", "aa"]),
            "rank": chance.choice([None, 1, 2, 2, 3]),
        }
        at = START + timedelta(minutes=chance.randrange(6))
        found = Decoded(topic=place[0], partition=place[1], offset=ends[place], event_time=at, fields=fields)
        made.append(replace(found, key=(fields["key"],)))
    return made


def expected(case: KindCase, records: Sequence[Decoded]) -> dict[str, Any]:
    """The values that the oracle computes, by key."""
    ordered = sorted(records, key=lambda r: (r.event_time, r.topic, r.partition, r.offset))
    by_key = {key: [r for r in ordered if r.fields["key"] == key] for key in KEYS}
    return {key: case.oracle(mine) for key, mine in by_key.items() if mine}


@dataclass
class KindBench:
    """The checkpoints of one field: a run per batch of records, and the outputs of compactions."""

    case: KindCase
    ask: QueryRunner
    levels: list[Sequence[Mapping[str, Any]]] = field(default_factory=list)
    checkpoint: int = 0

    def fold(self, records: Sequence[Decoded]) -> None:
        """Folds records into the run of a new checkpoint."""
        self.checkpoint += 1
        plan: Any = SimpleNamespace(id=self.checkpoint, access_ms=lambda at: at, logical_time_ms=0)
        self.levels.append(fold(self.case.schema, records, plan, Now()))

    def compact(self, first: int, end: int) -> None:
        """Merges the levels from `first` to `end`, in SQL and in the twin, which must agree."""
        rows = [row for level in self.levels[first:end] for row in level]
        schema, deepest = self.case.schema, first == 0
        twin = compact_rows(schema, rows, Now(), deepest=deepest)
        text = compacted_sql(schema, "rows", Now(), deepest=deepest)
        by_sql = self.ask(text, rows=self._table(rows)).cast(arrow_schema(run_columns(schema))).to_pylist()
        pairs = zip(sorted(by_sql, key=_by_key), sorted(twin, key=_by_key), strict=True)
        assert all(same(one, other, is_close=self.case.is_close) for one, other in pairs), (by_sql, twin)
        self.levels[first:end] = [by_sql]

    def check(self, wanted: Mapping[str, Any]) -> None:
        """Compares the resolved state, in SQL and in the twin, with the oracle."""
        rows, schema = [row for level in self.levels for row in level], self.case.schema
        twin = {key[0]: row["f"] for key, row in resolve_rows(schema, rows, Now()).items()}
        found = self.ask(resolving_sql(schema, "rows", Now()), rows=self._table(rows)).to_pylist()
        by_sql = {row["key"]: row["f"] for row in found}
        assert same(twin, wanted, is_close=self.case.is_close), (twin, wanted)
        assert same(by_sql, wanted, is_close=self.case.is_close), (by_sql, wanted)
        if not self.case.is_close:
            assert self.case.stored.exact

    def _table(self, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
        return pa.Table.from_pylist([dict(r) for r in rows], schema=arrow_schema(run_columns(self.case.schema)))


def same(one: Any, other: Any, *, is_close: bool) -> bool:
    """Whether two values are equal; with `is_close`, nearly equal floats count as equal."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same(one[k], other[k], is_close=is_close) for k in one)
    if is_close and isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-6) or one == other or (one != one and other != other)
    return bool(one == other)


def _by_key(row: Mapping[str, Any]) -> str:
    return str(row["key"])
