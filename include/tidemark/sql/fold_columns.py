"""The SQL of an operator's fields: partials over records, merges of partials, finished values.

Identifiers are in double quotes (ANSI). Each kind defines its expressions (`model.kinds`); this module adds the names
of their columns. Each merge is associative; merges of lists go by `_changed`, the others commute.
"""

from collections.abc import Sequence

from tidemark.model.core.ttl import Now
from tidemark.model.kinds.base.sql import expired as expired
from tidemark.model.kinds.base.sql import overflow_in as overflow_in
from tidemark.model.kinds.base.sql import quoted as quoted
from tidemark.model.kinds.base.sql import record_path as record_path
from tidemark.model.schema.operator_schema import KeyColumn, OperatorSchema, StoredField
from tidemark.portable_sql.dialects import DUCKDB_MACROS as DUCKDB_MACROS
from tidemark.portable_sql.dialects import Dialect


def spark(sql: str) -> str:
    """Returns the same text for Spark without `spark.sql.ansi.doubleQuotedIdentifiers`: identifiers in backticks."""
    return sql.replace('"', "`")


def partials(field: StoredField, only: str = "", *, emitted: bool = False) -> list[tuple[str, str]]:
    """Returns (column, aggregate expression over the records of a key) for each accumulator of a field.

    Args:
        field: the field.
        only: a condition on records; by default all count.
        emitted: whether a process emitted the records: then several have the same offset, and the frame has `_n`.
    """
    return _named(field, field.folded.partials(field, only, emitted=emitted))


def merges(field: StoredField, keys: Sequence[KeyColumn], dialect: Dialect) -> list[tuple[str, str]]:
    """Returns (column, aggregate expression over stored rows of a key) for each accumulator."""
    return _named(field, field.folded.merges(field, keys, dialect))


def finish(field: StoredField, keys: Sequence[KeyColumn], dialect: Dialect, now: int | str | None) -> str:
    """Returns the expression of a fold's field over merged accumulators.

    Args:
        field: the field.
        keys: for messages.
        dialect: dialect of the engine.
        now: the time on the operator's clock in milliseconds, or an expression for it; None = nothing expires.
    """
    return field.folded.finish(field, keys, dialect, now)


def key_columns(schema: OperatorSchema) -> list[str]:
    """Returns quoted key columns."""
    return [quoted(k.name) for k in schema.keys]


def now_of(schema: OperatorSchema, now: Now) -> int | None:
    """Returns the time on an operator's clock."""
    return now.of(schema.clock)


def _named(field: StoredField, made: Sequence[str]) -> list[tuple[str, str]]:
    return list(zip((name for name, _ in field.accumulators), made, strict=True))
