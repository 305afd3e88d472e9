"""SQL expressions that kinds of state share.

Identifiers are in double quotes (ANSI). Partials are Spark SQL over the decoded frame (`topic`, `partition`, `offset`,
`event_time`, `record`, and `_at`, the access time). Merge and finish are the same in Spark and DuckDB, except for the
parts of a `Dialect`.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from tidemark.errors import StateOverflowError
from tidemark.model.core.ttl import Now
from tidemark.model.core.types import FieldType
from tidemark.model.portable_sql.dialects import DUCKDB_MACROS as DUCKDB_MACROS
from tidemark.model.portable_sql.dialects import Dialect
from tidemark.model.schema.operator_schema import KeyColumn, OperatorSchema, StoredField

OVERFLOW = "tidemark_state_overflow"
"""Marks an overflow in the message of a foreign error: `tidemark_state_overflow <field> of key (<key>) <why>`."""
_FOUND = re.compile(rf"{OVERFLOW} (.*? of key \(.*?\) does not fit[a-z0-9 ]*)", re.DOTALL)


def quote(name: str) -> str:
    """Returns a column name as an ANSI identifier."""
    return f'"{name}"'


def record_path(source: str) -> str:
    """Returns the Spark SQL path of a record field in the decoded frame."""
    return ".".join(quote(step) for step in ("record", *source.split(".")))


def filter_sql(*conditions: str) -> str:
    """Returns the FILTER clause of an aggregate that applies if all conditions hold; empty conditions are omitted."""
    known = " AND ".join(f"({c})" for c in conditions if c)
    return f" FILTER (WHERE {known})" if known else ""


def expired_sql(at: str, field: StoredField, now: int | str | None) -> str | None:
    """Returns the condition that a value last accessed at `at` is hidden; None if that is impossible.

    Args:
        at: the access time.
        field: the field.
        now: milliseconds, or an expression for them.
    """
    if field.ttl is None or not field.ttl.hides or now is None:
        return None
    return f"{at} <= {now - field.ttl.ms}" if isinstance(now, int) else f"{at} <= {now} - {field.ttl.ms}"


def list_values(field: StoredField, dialect: Dialect, now: int | str | None) -> str:
    """Returns the values of a stored list that have not expired."""
    kept = live_elements(field, dialect, now)
    return dialect.or_empty(dialect.transform(kept, "e", 'e."value"'))


def live_elements(field: StoredField, dialect: Dialect, now: int | str | None) -> str:
    """Returns the stored elements of a list that have not expired."""
    hidden = expired_sql('e."at"', field, now)
    column = quote(field.name)
    return column if hidden is None else dialect.filter(column, "e", f"NOT ({hidden})")


def is_filled(array: str, dialect: Dialect) -> str:
    """Returns the condition that an array has an element."""
    return f"cardinality({dialect.or_empty(array)}) > 0"


def overflow_message(field: str, keys: Sequence[KeyColumn], why: str) -> str:
    """Returns the SQL expression for the message that names a key whose state does not fit."""
    names = ", ', ', ".join(f"CAST({quote(k.name)} AS STRING)" for k in keys)
    return f"concat('{OVERFLOW} {field} of key (', {names}, ') {why}')"


def overflow_in(message: str) -> str | None:
    """Returns the field and key that overflowed, if the message of a foreign error names them."""
    found = _FOUND.search(message)
    return found[1] if found else None


def bounded_sql(field: StoredField, values: str, keys: Sequence[KeyColumn]) -> str:
    """Returns the visible values if the limit allows that many; expired values never count."""
    message = overflow_message(field.name, keys, f"does not fit its limit of {field.limit}")
    return f"CASE WHEN cardinality({values}) <= {field.limit} THEN {values} ELSE raise_error({message}) END"


def bounded_in_run(field: StoredField, column: str, otherwise: str, keys: Sequence[KeyColumn]) -> str:
    """Returns a column of a run in Spark SQL, if the limit allows that many values.

    Args:
        field: the field.
        column: its values that have not expired by the key's last access in the run.
        otherwise: a WHEN branch for values that have expired since, because other keys have advanced the clock.
        keys: for messages.
    """
    message = overflow_message(field.name, keys, f"does not fit its limit of {field.limit}")
    fits = f"WHEN size({column}) <= {field.limit} THEN {column}"
    return f"CASE {fits} {otherwise} ELSE raise_error({message}) END"


def checked_sql(value: str, fits: str, finished: str, name: str, keys: Sequence[KeyColumn]) -> str:
    """Returns `finished` if `value` is null or fits; otherwise the SQL raises an error with field and key."""
    message = overflow_message(name, keys, "does not fit its type or its limit")
    return f"CASE WHEN {value} IS NULL OR {fits} THEN {finished} ELSE raise_error({message}) END"


def summed_sql(value: str, over: FieldType, where: str) -> str:
    """Returns the sum of a record field in Spark SQL; of decimals with 38 digits."""
    if over.kind == "decimal":
        return f"CAST(sum(CAST({value} AS DECIMAL(38,{over.scale}))){where} AS DECIMAL(38,{over.scale}))"
    return f"sum({value}){where}"


def merged_sum(field: StoredField, column: str, of: FieldType, keys: Sequence[KeyColumn], dialect: Dialect) -> str:
    """Returns the sum of a stored column of sums; an integer beyond 64 bits is an error that names the key."""
    if of.kind == "int":
        total, fits = dialect.exact_sum(column)
        return checked_sql(f"max({column})", fits, total, field.name, keys)
    return f"CAST(sum({column}) AS {of.sql})" if of.kind == "decimal" else f"sum({column})"


def merged_count(column: str) -> str:
    """Returns the sum of a stored column of counts."""
    return f"CAST(sum({column}) AS BIGINT)"


def as_double(value: str, of: FieldType) -> str:
    """Returns a number as a double; decimals through text, because engines round wide ones differently."""
    return value if of.kind == "float" else f"CAST(CAST({value} AS STRING) AS DOUBLE)"


# The SQL of an operator's fields: partials over records, merges of partials, finished values.
#
# Identifiers are in double quotes (ANSI). Each kind defines its expressions (`model.kinds`); this part adds the names
# of their columns. Each merge is associative; merges of lists go by `_changed`, the others commute.
def spark(sql: str) -> str:
    """Returns the same text for Spark without `spark.sql.ansi.doubleQuotedIdentifiers`: identifiers in backticks."""
    return sql.replace('"', "`")


def partials(field: StoredField, only: str = "", *, emitted: bool = False) -> list[tuple[str, str]]:
    """Returns (column, aggregate expression over the records of a key) for each accumulator of a field.

    Args:
        field: the field.
        only: a condition on records; by default all count.
        emitted: whether an operator emitted the records: several have one offset, and the frame has `_path`.
    """
    return _named(field, field.fold_kind.partials(field, only, emitted=emitted))


def merges(field: StoredField, keys: Sequence[KeyColumn], dialect: Dialect) -> list[tuple[str, str]]:
    """Returns (column, aggregate expression over stored rows of a key) for each accumulator."""
    return _named(field, field.fold_kind.merges(field, keys, dialect))


def finish(field: StoredField, keys: Sequence[KeyColumn], dialect: Dialect, now: int | str | None) -> str:
    """Returns the expression of a fold's field over merged accumulators.

    Args:
        field: the field.
        keys: for messages.
        dialect: dialect of the engine.
        now: the time on the operator's clock in milliseconds, or an expression for it; None = nothing expires.
    """
    return field.fold_kind.finish(field, keys, dialect, now)


def key_columns(schema: OperatorSchema) -> list[str]:
    """Returns quoted key columns."""
    return [quote(k.name) for k in schema.keys]


def now_of(schema: OperatorSchema, now: Now) -> int | None:
    """Returns the time on an operator's clock."""
    return now.of(schema.clock)


def _named(field: StoredField, made: Sequence[str]) -> list[tuple[str, str]]:
    return list(zip((name for name, _ in field.accumulators), made, strict=True))


# Limits over all batches: the fields that a checkpoint compares with the state that a key already has.
#
# A fold writes operands without reading old state, so a batch alone does not show that a list or a set of values
# exceeds its limit. Operators with such fields look up the keys that the batch adds to, and resolve just these fields
# as a reader would: a checkpoint fails if and only if reading its result would fail.
_PREFIX = "state overflow: "


def limited_schema(schema: OperatorSchema) -> OperatorSchema | None:
    """Returns the schema with only the fields that may exceed a limit; None if no field has one.

    If there is one, sums of integers are included, at no extra cost. A process knows the whole state of a key when it
    writes it, so its limits are not checked here.
    """
    if schema.kind != "fold" or not any(f.fold_kind.is_limited for f in schema.fields):
        return None
    return replace(schema, fields=tuple(f for f in schema.fields if _is_checked(f)))


def adds_sql(schema: OperatorSchema) -> str:
    """Returns the condition, in ANSI SQL over rows of a run, that a row adds to a limited field of older rows.

    A value or a tombstone has no older rows; a row that adds nothing stays within the limit.
    """
    return f"\"_kind\" = 'operand' AND ({' OR '.join(f.fold_kind.adds(f) for f in schema.fields)})"


@contextmanager
def overflows_of(uid: str) -> Iterator[None]:
    """Adds the operator to errors of keys whose state does not fit.

    Raises:
        StateOverflowError: the error of the block, with the operator.
    """
    try:
        yield
    except StateOverflowError as error:
        what = f"{_PREFIX}{uid}: {error.what.removeprefix(_PREFIX)}"
        raise StateOverflowError(what, safe=error.safe, next=error.next) from error


def _is_checked(f: StoredField) -> bool:
    return f.fold_kind.is_limited or f.fold_kind.may_leave_64_bits(f)
