"""`state.list` of a fold: the values of a field, in order; for a process see `list_of_values`."""

import builtins
from collections.abc import Iterator, Sequence
from typing import Any

from tidemark.model.core.ttl import as_ttl
from tidemark.model.core.types import FieldType
from tidemark.model.kinds.base.declaring import TimeToLive, checked_limit
from tidemark.model.kinds.base.elements import list_column, stored_elements
from tidemark.model.kinds.base.kind import Accumulators, FoldKind, StateDescriptor, Time
from tidemark.model.kinds.base.python import OfKey, Placed, Row, bounded_values, live_values, not_null
from tidemark.model.kinds.base.sql import (
    bounded_in_run,
    bounded_sql,
    filter_sql,
    is_filled,
    list_values,
    live_elements,
    quote,
    record_path,
)
from tidemark.model.kinds.list_of_values import ProcessList
from tidemark.model.portable_sql.dialects import SPARK, Dialect
from tidemark.model.schema.operator_schema import KeyColumn, StoredField

_NUMBER = ", 'path', \"_path\""


class FoldedList(FoldKind):
    """The values that are not null, each with the time at which it was added."""

    name = "list"
    annotation = "list"
    is_collection = True
    is_limited = True
    depends_on_arrival = True
    expires_by_element = True

    def result_type(self, at: str, declared: StateDescriptor, over: FieldType) -> FieldType:
        """See `FoldKind`."""
        return FieldType("list", element=over.with_null(False))

    def accumulators(self, field: StoredField) -> Accumulators:
        """See `StateKind`."""
        return ((field.name, list_column(field.over)),)

    def absent(self, field: StoredField) -> tuple[object, ...]:
        """See `StateKind`."""
        return ((),)

    def imported_columns(self, field: StoredField) -> Iterator[tuple[str, FieldType]]:
        """See `StateKind`."""
        yield field.name, FieldType("list", nullable=True, element=field.over)

    def imported_values(self, field: StoredField, at_ms: int) -> Iterator[tuple[str, str]]:
        """See `StateKind`."""
        yield field.name, stored_elements(field, at_ms)

    def partials(self, field: StoredField, only: str, *, emitted: bool) -> builtins.list[str]:
        """See `FoldKind`."""
        value = record_path(field.source)
        place = "'topic', \"topic\", 'partition', \"partition\", 'offset', \"offset\"" + _NUMBER * emitted
        placed = f"named_struct({place}, 'held', named_struct('at', \"_at\", 'value', {value}))"
        collected = f"collect_list({placed}){filter_sql(only, f'{value} IS NOT NULL')}"
        return [f"transform(array_sort({collected}), r -> r.held)"]

    def merges(self, field: StoredField, keys: Sequence[KeyColumn], dialect: Dialect) -> builtins.list[str]:
        """See `FoldKind`: in the order of checkpoints."""
        column = quote(field.name)
        placed = dialect.struct([("placed", quote("_changed")), ("held", column)])
        collected = f"array_sort(array_agg({placed}){filter_sql(f'{column} IS NOT NULL')})"
        held = dialect.transform(collected, "r", 'r."held"')
        return [f"flatten({held})"]

    def finish(self, field: StoredField, keys: Sequence[KeyColumn], dialect: Dialect, now: Time) -> str:
        """See `FoldKind`."""
        return bounded_sql(field, list_values(field, dialect, now), keys)

    def run_columns(self, field: StoredField, keys: Sequence[KeyColumn], now: int | None) -> dict[str, str]:
        """See `FoldKind`."""
        live = live_elements(field, SPARK, now)
        otherwise = f"WHEN size({live}) <= {field.limit} THEN {live}"
        return {field.name: bounded_in_run(field, live_elements(field, SPARK, '"_last_at"'), otherwise, keys)}

    def adds(self, field: StoredField) -> str:
        """See `FoldKind`."""
        return f"coalesce(cardinality({quote(field.name)}), 0) > 0"

    def is_present(self, field: StoredField, hidden: str, dialect: Dialect, now: Time) -> str:
        """See `FoldKind`."""
        return is_filled(live_elements(field, dialect, now), dialect)

    def drop_expired(self, field: StoredField, hidden: str, dialect: Dialect, now: Time) -> dict[str, str]:
        """See `FoldKind`."""
        return {field.name: live_elements(field, dialect, now)}

    def fold(self, field: StoredField, of: OfKey, placed: Placed) -> builtins.list[Any]:
        """See `FoldKind`."""
        ordered = sorted(placed, key=lambda p: p[1].position)
        found = [{"at": at, "value": r.at(field.source)} for at, r in ordered if r.at(field.source) is not None]
        # State that has expired by the key's own last access has expired for every reader.
        found = live_values(field, found, max((at for at, _ in placed), default=None))
        if len(found) <= field.limit:
            return [found]
        return [bounded_values(field, of.key, live_values(field, found, of.now))]

    def merge(self, field: StoredField, of: OfKey, n: int, values: Sequence[Any]) -> Any:
        """See `FoldKind`."""
        return [v for held in not_null(values) for v in held]

    def read(self, field: StoredField, of: OfKey, row: Row) -> Any:
        """See `FoldKind`."""
        live = live_values(field, row[field.name] or [], of.now)
        return bounded_values(field, of.key, [e["value"] for e in live])

    def is_hidden(self, field: StoredField, now: int | None, row: Row) -> bool:
        """See `FoldKind`."""
        if field.ttl is None or not field.ttl.hides or now is None:
            return False
        return not live_values(field, row[field.name] or [], now)

    def swept(self, field: StoredField, now: int | None, row: Row) -> dict[str, Any]:
        """See `FoldKind`."""
        return {field.name: live_values(field, row[field.name] or [], now)}


def list(source: str = "", *, limit: int = 10_000, ttl: TimeToLive = None, was: str = "") -> Any:  # noqa: A001
    """Keeps a list.

    In a `Fold`, with `source`, it appends the field's values that are not null, checkpoint after checkpoint, and within
    a checkpoint in order of (topic, partition, offset). In a `Process`, your function changes the list.

    Args:
        source: the record field; empty in a `Process`.
        limit: a key with more elements is a `StateOverflowError` that names the key.
        ttl: time to live of each element.
        was: see `StateDescriptor`.
    """
    kind = FoldedList.name if source else ProcessList.name
    return StateDescriptor(kind=kind, source=source, limit=checked_limit("list", limit), ttl=as_ttl(ttl), was=was)
