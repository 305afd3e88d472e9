"""`state.map`: a dict of a process, stored as a row per entry (Flink's MapState)."""

from collections.abc import Iterable, Iterator
from typing import Any

from tidemark.model.core.ttl import as_ttl
from tidemark.model.core.types import FieldType
from tidemark.model.kinds.base.declaring import TimeToLive, checked_limit
from tidemark.model.kinds.base.kind import Accumulators, StateDescriptor, Time
from tidemark.model.kinds.base.process_kind import ProcessKind
from tidemark.model.kinds.base.python import Row, is_expired
from tidemark.model.kinds.base.sql import quote
from tidemark.model.portable_sql.dialects import Dialect
from tidemark.model.schema.operator_schema import StoredField


class Map(ProcessKind):
    """Entries, each in its own row with the time of its last access; `sql.map_entries` gathers them."""

    name = "map"
    annotation = "map"
    is_collection = True
    is_limited = True
    expires_by_element = True
    is_stored_by_entry = True
    keeps_nulls = True

    def default(self, declared: StateDescriptor) -> object:
        """See `StateKind`."""
        return {}

    def accumulators(self, field: StoredField) -> Accumulators:
        """See `StateKind`: the columns of an entry."""
        assert field.type.key is not None  # noqa: S101  (for the type checker)
        return (
            (f"{field.name}__key", field.type.key.with_null(True)),
            (field.name, field.over.with_null(True)),
            (f"{field.name}__at", FieldType("int", nullable=True)),
        )

    def imported_columns(self, field: StoredField) -> Iterator[tuple[str, FieldType]]:
        """See `StateKind`."""
        yield field.name, field.type.with_null(True)

    def imported_values(self, field: StoredField, at_ms: int) -> Iterator[tuple[str, str]]:
        """See `StateKind`: nothing in the row of the key."""
        yield from ()

    def finish(self, field: StoredField, dialect: Dialect, now: Time) -> str:
        """See `ProcessKind`, over the gathered live entries."""
        return f"map_from_entries({quote(field.name)})"

    def is_present(self, field: StoredField, dialect: Dialect, now: Time) -> str:
        """See `ProcessKind`, over the gathered live entries."""
        return f"cardinality({quote(field.name)}) > 0"

    def read(self, field: StoredField, own: Row, entries: Iterable[Row], now: int | None) -> tuple[Any, bool]:
        """See `ProcessKind`."""
        key, at = f"{field.name}__key", f"{field.name}__at"
        held = {row[key]: row[field.name] for row in entries if not is_expired(field, row[at], now)}
        return dict(sorted(held.items())), bool(held)


def map(*, limit: int = 100_000, ttl: TimeToLive = None, was: str = "") -> Any:  # noqa: A001
    """Keeps a dict of a `Process` as a row per entry: a checkpoint writes only entries that changed.

    Args:
        limit: a key with more entries is a `StateOverflowError` that names the key.
        ttl: time to live of each entry.
        was: see `StateDescriptor`.
    """
    return StateDescriptor(kind="map", limit=checked_limit("map", limit), ttl=as_ttl(ttl), was=was)
