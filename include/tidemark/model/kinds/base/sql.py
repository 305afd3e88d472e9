"""SQL expressions that kinds of state share.

Identifiers are in double quotes (ANSI). Partials are Spark SQL over the decoded frame (`topic`, `partition`, `offset`,
`event_time`, `record`, and `_at`, the access time). Merge and finish are the same in Spark and DuckDB, except for the
parts of a `Dialect`.
"""

import re
from collections.abc import Sequence

from tidemark.model.core.types import FieldType
from tidemark.model.schema.operator_schema import KeyColumn, StoredField
from tidemark.portable_sql.dialects import Dialect

OVERFLOW = "tidemark_state_overflow"
"""Marks an overflow in the message of a foreign error: `tidemark_state_overflow <field> of key (<key>) <why>`."""
_FOUND = re.compile(rf"{OVERFLOW} (.*? of key \(.*?\) does not fit[a-z0-9 ]*)", re.DOTALL)


def quoted(name: str) -> str:
    """Returns a column name as an ANSI identifier."""
    return f'"{name}"'


def record_path(source: str) -> str:
    """Returns the Spark SQL path of a record field in the decoded frame."""
    return ".".join(quoted(step) for step in ("record", *source.split(".")))


def filtered(*conditions: str) -> str:
    """Returns the FILTER clause of an aggregate that applies if all conditions hold; empty conditions are omitted."""
    known = " AND ".join(f"({c})" for c in conditions if c)
    return f" FILTER (WHERE {known})" if known else ""


def expired(at: str, field: StoredField, now: int | str | None) -> str | None:
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
    hidden = expired('e."at"', field, now)
    column = quoted(field.name)
    return column if hidden is None else dialect.filter(column, "e", f"NOT ({hidden})")


def is_filled(array: str, dialect: Dialect) -> str:
    """Returns the condition that an array has an element."""
    return f"cardinality({dialect.or_empty(array)}) > 0"


def overflow_message(field: str, keys: Sequence[KeyColumn], why: str) -> str:
    """Returns the SQL expression for the message that names a key whose state does not fit."""
    names = ", ', ', ".join(f"CAST({quoted(k.name)} AS STRING)" for k in keys)
    return f"concat('{OVERFLOW} {field} of key (', {names}, ') {why}')"


def overflow_in(message: str) -> str | None:
    """Returns the field and key that overflowed, if the message of a foreign error names them."""
    found = _FOUND.search(message)
    return found[1] if found else None


def bounded(field: StoredField, values: str, keys: Sequence[KeyColumn]) -> str:
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


def checked(value: str, fits: str, finished: str, name: str, keys: Sequence[KeyColumn]) -> str:
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
        return checked(f"max({column})", fits, total, field.name, keys)
    return f"CAST(sum({column}) AS {of.sql})" if of.kind == "decimal" else f"sum({column})"


def merged_count(column: str) -> str:
    """Returns the sum of a stored column of counts."""
    return f"CAST(sum({column}) AS BIGINT)"


def as_double(value: str, of: FieldType) -> str:
    """Returns a number as a double; decimals through text, because engines round wide ones differently."""
    return value if of.kind == "float" else f"CAST(CAST({value} AS STRING) AS DOUBLE)"
