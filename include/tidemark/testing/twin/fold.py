"""The fold of a batch in Python: the kinds of state turn the records of a key into one row."""

import atexit
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.core.offsets import PER_RECORD, Path
from tidemark.model.core.ttl import Now
from tidemark.model.core.types import FieldType
from tidemark.model.kinds.base.authored import finish_sql_of, refuse_without_spark
from tidemark.model.kinds.base.python import OfKey, Overflow
from tidemark.model.kinds.base.sql import quote
from tidemark.model.portable_sql.custom_aggregate import partial_sql
from tidemark.model.portable_sql.dialects import DUCKDB
from tidemark.model.schema.event_windows import END, START
from tidemark.model.schema.key_groups import group_of
from tidemark.model.schema.operator_schema import OperatorSchema, StoredField

if TYPE_CHECKING:
    from tidemark.readers.duckdb_session import QueryRunner


# DuckDB evaluates SQL of the portable subset over records and accumulators in memory.
def partials(field: StoredField, records: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Returns the accumulators of a custom aggregate over records, which are given as dicts of path to value.

    Raises:
        Overflow: an integer exceeds 64 bits.
        UsageError: the field is declared `spark_only`.
    """
    refuse_without_spark(field, DUCKDB)
    assert field.aggregate is not None  # noqa: S101  (for the type checker)
    inputs = dict(field.aggregate.inputs)
    made = [partial_sql(text, inputs, quote).sql for text in field.aggregate.partial]
    # A column that always exists, for a partial that only counts and names no column.
    columns = [*((path, of.sql) for path, of in inputs.items()), ("_row", "BIGINT")]
    rows = [{**r, "_row": n} for n, r in enumerate(records)]
    found = _query(f"SELECT {', '.join(f'{sql} AS a{n}' for n, sql in enumerate(made))} FROM rows", columns, rows)
    types = (of for _, of in field.accumulators)
    return [_plain(value, of) for value, of in zip(found.values(), types, strict=True)]


def finish(field: StoredField, row: Mapping[str, Any]) -> Any:
    """Returns the finished value of a custom aggregate over a merged row.

    Raises:
        Overflow: an integer exceeds 64 bits.
        UsageError: the field is declared `spark_only`.
    """
    columns = [(name, of.sql) for name, of in field.accumulators]
    held = {name: row[name] for name, _ in field.accumulators}
    found = _query(f"SELECT {finish_sql_of(field, DUCKDB)} AS a0 FROM rows", columns, [held])
    return _plain(found["a0"], field.type)


def _query(sql: str, columns: Sequence[tuple[str, str]], rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    # Imported here, so that only pipelines with custom aggregates load DuckDB and Arrow.
    import duckdb
    import pyarrow as pa

    from tidemark.tables.delta_tables import arrow_schema

    table = pa.Table.from_pylist([dict(r) for r in rows], schema=arrow_schema(columns))
    try:
        found: dict[str, Any] = _session()(sql, rows=table).to_pylist()[0]
    except duckdb.OutOfRangeException as error:
        raise Overflow from error
    return found


def _plain(value: Any, of: FieldType) -> Any:
    if isinstance(value, Decimal) and of.kind == "int":
        value = int(value)
    if of.kind == "int" and value is not None and not -(2**63) <= value < 2**63:
        raise Overflow
    return value.astimezone(UTC) if isinstance(value, datetime) else value


@cache
def _session() -> "QueryRunner":
    from tidemark.readers.duckdb_session import open_query_runner

    kept = ExitStack()
    atexit.register(kept.close)
    return kept.enter_context(open_query_runner())


Key = tuple[Any, ...]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """A good record with its position; `key` is that of the operator that gets it."""

    topic: str
    partition: int
    offset: int
    event_time: datetime
    fields: Mapping[str, Any]
    path: Path = ()
    key: Key = ()

    @property
    def position(self) -> tuple[str, int, int, Path]:
        """Topic, partition, offset and path: unique in a batch."""
        return (self.topic, self.partition, self.offset, self.path)

    @property
    def kept_offset(self) -> int:
        """The offset and the last number of the path, which are stored with a value."""
        return self.offset * PER_RECORD + self.path[-1] % PER_RECORD if self.path else self.offset

    def at(self, path: str) -> Any:
        """Returns the field at a dotted path, or None if a step of the path is null."""
        found: Any = self.fields
        for step in path.split("."):
            found = None if found is None else found[step]
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleted:
    """A record without a value, which deletes all earlier state of its key.

    `event_time` is the Kafka timestamp; `key` is the key that an operator reads from the message key.
    """

    topic: str
    partition: int
    offset: int
    event_time: datetime
    key: Key


def fold(
    schema: OperatorSchema, records: Iterable[Decoded | Deleted], plan: CheckpointPlan, now: Now
) -> list[dict[str, Any]]:
    """Returns the run of a batch, sorted by (key group, key): per key a row of operands, or the rows after a delete.

    Args:
        schema: the stored schema.
        records: the records that the operator applies.
        plan: the plan.
        now: the clocks after the batch; rows that have expired by then do not count against a limit.
    """
    by_key: dict[Key, list[Decoded | Deleted]] = {}
    for record in _in_windows(schema, records):
        by_key.setdefault(record.key, []).append(record)
    rows = [_row(schema, key, found, plan, now.of(schema.clock)) for key, found in by_key.items()]
    return sorted(rows, key=lambda r: (r["_key_group"], tuple(r[k.name] for k in schema.keys)))


def _in_windows(schema: OperatorSchema, records: Iterable[Decoded | Deleted]) -> Iterable[Decoded | Deleted]:
    """Returns the records with the bounds of the rows that they count in: those of a session, if they may overlap."""
    if schema.window is None or not schema.window.is_merged:
        return records
    own = len(schema.own_keys)
    rows = [{START: r.key[own], END: r.key[own + 1], "record": r} for r in records]
    found = schema.window.windows(rows, lambda row: row["record"].key[:own])
    return [replace(row["record"], key=(*row["record"].key[:own], row[START], row[END])) for row in found]


def access_ms(schema: OperatorSchema, record: Decoded | Deleted, plan: CheckpointPlan) -> int:
    """Returns when a record accesses its key's state, in milliseconds on the operator's clock (`model.ttl`)."""
    if schema.clock == "logical_time":
        return plan.logical_time_ms
    return plan.access_ms((record.event_time - _EPOCH) // timedelta(milliseconds=1))


def _row(
    schema: OperatorSchema, key: Key, found: Sequence[Decoded | Deleted], plan: CheckpointPlan, now: int | None
) -> dict[str, Any]:
    row: dict[str, Any] = {k.name: value for k, value in zip(schema.keys, key, strict=True)}
    gone, records = _since_delete(found)
    placed = [(access_ms(schema, r, plan), r) for r in records]
    times = sorted(at for at, _ in placed) or [access_ms(schema, r, plan) for r in gone]
    for f in schema.fields:
        began = times[0] if not f.is_cut or f.ttl is None else last_start(times, f.ttl.ms)
        counted = [(at, r) for at, r in placed if at >= began]
        if schema.has_row_keys:  # positions alone are the order of a row's versions
            counted = [(at, replace(r, event_time=_EPOCH)) for at, r in counted]
        row |= zip((name for name, _ in f.accumulators), f.fold_kind.fold(f, of_key(key, now), counted), strict=True)
        if f.is_cut:
            row[f"{f.name}__cut"] = began > times[0]
    row |= {"_first_at": times[0] if times[0] != times[-1] else None, "_last_at": times[-1]}
    row["_kind"] = "operand" if not gone else "value" if records else "tombstone"
    return row | {"_changed": plan.id, "_key_group": group_of(schema, key)}


def _since_delete(found: Sequence[Decoded | Deleted]) -> tuple[list[Deleted], list[Decoded]]:
    """Returns the last delete of a key in a batch, or None, and the records after it."""
    gone: list[Deleted] = []
    records: list[Decoded] = []
    for r in sorted(found, key=lambda r: (r.topic, r.partition, r.offset)):
        if isinstance(r, Deleted):
            gone, records = [r], []
        else:
            records.append(r)
    return gone, records


def last_start(times: Sequence[int], ttl_ms: int) -> int:
    """Returns where the history in ascending access times begins: after the last gap of `ttl_ms` or more."""
    began = times[0]
    for before, at in pairwise(times):
        if at - before >= ttl_ms:
            began = at
    return began


class _Portable:
    """Evaluates authors' SQL with DuckDB, which is imported only when needed."""

    def partials(self, field: StoredField, records: Sequence[Mapping[str, Any]]) -> list[Any]:
        return partials(field, records)

    def finish_value(self, field: StoredField, row: Mapping[str, Any]) -> Any:
        return finish(field, row)


def of_key(key: Key, now: int | None) -> OfKey:
    """The context in which a kind computes: a key, and a time on the operator's clock."""
    return OfKey(key=key, now=now, portable=_Portable())
