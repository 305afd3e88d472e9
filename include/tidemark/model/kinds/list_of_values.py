"""The `state.list` of a process (Flink's ListState); `list` declares it."""

from collections.abc import Iterable, Iterator
from typing import Any

from tidemark.model.core.types import FieldType
from tidemark.model.kinds.base.elements import list_column, stored_elements
from tidemark.model.kinds.base.kind import Accumulators, Time
from tidemark.model.kinds.base.process_kind import ProcessKind
from tidemark.model.kinds.base.python import Row, live_values
from tidemark.model.kinds.base.sql import is_filled, list_values, live_elements
from tidemark.model.portable_sql.dialects import Dialect
from tidemark.model.schema.operator_schema import StoredField


class ProcessList(ProcessKind):
    """Elements, each with the time at which it was added."""

    name = "list_of_values"
    shown = "list"
    annotation = "list"
    is_collection = True
    is_limited = True
    expires_by_element = True
    keeps_nulls = True

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

    def finish(self, field: StoredField, dialect: Dialect, now: Time) -> str:
        """See `ProcessKind`."""
        return list_values(field, dialect, now)

    def is_present(self, field: StoredField, dialect: Dialect, now: Time) -> str:
        """See `ProcessKind`."""
        return is_filled(live_elements(field, dialect, now), dialect)

    def swept(self, field: StoredField, dialect: Dialect, now: Time) -> dict[str, str]:
        """See `ProcessKind`."""
        return {field.name: live_elements(field, dialect, now)}

    def read(self, field: StoredField, own: Row, entries: Iterable[Row], now: int | None) -> tuple[Any, bool]:
        """See `ProcessKind`."""
        values = [e["value"] for e in live_values(field, own[field.name] or (), now)]
        return values, bool(values)

    def drop_expired(self, field: StoredField, own: Row, now: int | None) -> dict[str, Any]:
        """See `ProcessKind`."""
        return {field.name: live_values(field, own[field.name] or (), now)}

    def holds(self, field: StoredField, own: Row) -> bool:
        """See `ProcessKind`."""
        return bool(own[field.name])
