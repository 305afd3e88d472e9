"""`state.value`: one value of a process (Flink's ValueState)."""

import copy
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from tidemark.errors import DeclarationError
from tidemark.model.core.ttl import as_ttl
from tidemark.model.core.types import FieldType
from tidemark.model.kinds.base.declaring import TimeToLive
from tidemark.model.kinds.base.kind import Accumulators, StateDescriptor, Time
from tidemark.model.kinds.base.process_kind import ProcessKind
from tidemark.model.kinds.base.python import Row, is_expired
from tidemark.model.kinds.base.sql import expired_sql, quote
from tidemark.model.portable_sql.dialects import Dialect
from tidemark.model.schema.operator_schema import StoredField

T = TypeVar("T")


class Value(ProcessKind):
    """A value with the time of its last access; without that time there is no value."""

    name = "value"

    def default(self, declared: StateDescriptor) -> object:
        """See `StateKind`."""
        return copy.deepcopy(declared.initial)

    def is_optional(self, declared: StateDescriptor, found: FieldType) -> bool:
        """See `StateKind`."""
        return found.nullable

    def check_annotation(self, declared: StateDescriptor, found: FieldType, where: str) -> StateDescriptor:
        """See `StateKind`."""
        if declared.initial is None and not found.nullable:
            raise DeclarationError(
                f"{where}: the annotation excludes None, but the initial value is None", next="declare `... | None`."
            )
        return declared

    def inner(self, declared: FieldType) -> FieldType:
        """See `ProcessKind`."""
        return declared

    def accumulators(self, field: StoredField) -> Accumulators:
        """See `StateKind`."""
        return ((field.name, field.over.with_null(True)), (_at(field), FieldType("int", nullable=True)))

    def imported_columns(self, field: StoredField) -> Iterator[tuple[str, FieldType]]:
        """See `StateKind`."""
        yield field.name, field.over.with_null(True)

    def imported_values(self, field: StoredField, at_ms: int) -> Iterator[tuple[str, str]]:
        """See `StateKind`."""
        yield field.name, quote(field.name)
        yield _at(field), f"CASE WHEN {quote(field.name)} IS NOT NULL THEN {at_ms} END"

    def finish(self, field: StoredField, dialect: Dialect, now: Time) -> str:
        """See `ProcessKind`."""
        hidden = expired_sql(quote(_at(field)), field, now)
        return quote(field.name) if hidden is None else f"CASE WHEN {hidden} THEN NULL ELSE {quote(field.name)} END"

    def is_present(self, field: StoredField, dialect: Dialect, now: Time) -> str:
        """See `ProcessKind`."""
        at = quote(_at(field))
        hidden = expired_sql(at, field, now)
        return f"({at} IS NOT NULL{'' if hidden is None else f' AND NOT ({hidden})'})"

    def swept(self, field: StoredField, dialect: Dialect, now: Time) -> dict[str, str]:
        """See `ProcessKind`."""
        gone = expired_sql(quote(_at(field)), field, now)
        return {name: f"CASE WHEN {gone} THEN NULL ELSE {quote(name)} END" for name, _ in field.accumulators}

    def read(self, field: StoredField, own: Row, entries: Iterable[Row], now: int | None) -> tuple[Any, bool]:
        """See `ProcessKind`."""
        at = own[_at(field)]
        return (None, False) if at is None or is_expired(field, at, now) else (own[field.name], True)

    def drop_expired(self, field: StoredField, own: Row, now: int | None) -> dict[str, Any]:
        """See `ProcessKind`."""
        at = own[_at(field)]
        return {field.name: None, _at(field): None} if at is not None and is_expired(field, at, now) else {}

    def holds(self, field: StoredField, own: Row) -> bool:
        """See `ProcessKind`."""
        return own[_at(field)] is not None


def value(initial: T, *, ttl: TimeToLive = None, was: str = "") -> T:
    """Keeps one value of a `Process`, which the function reads and assigns.

    Args:
        initial: value for a key that has none, of the annotated type. The function gets a copy of its own.
        ttl: after it the function gets `initial` again; the annotation must then allow None, which SQL shows.
        was: see `StateDescriptor`.
    """
    made: Any = StateDescriptor(kind="value", initial=initial, ttl=as_ttl(ttl), was=was)
    found: T = made
    return found


def _at(field: StoredField) -> str:
    return f"{field.name}__at"
