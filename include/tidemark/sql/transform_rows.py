"""The rows of a transform: what its queries read, how answers are checked, which stored rows stay as they are.

A query sees a state as `tidemark state sql` shows it, with the further columns that a table of state must have, so
`SELECT *` is the same state again. A row that the query leaves as it was keeps its stored form: accumulators, access
times, places of its records. Only other rows get the form of a bootstrap (`sql.initial_state`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidemark.model.core.ttl import Now
from tidemark.model.core.types import FieldType
from tidemark.model.kinds.base.sql import expired_sql, key_columns, now_of, quote
from tidemark.model.portable_sql.dialects import DUCKDB
from tidemark.model.schema.operator_schema import OperatorSchema, StoredField, run_columns
from tidemark.sql.initial_state import given_columns
from tidemark.sql.resolve import empty_columns, resolving_sql, single_sql

_INTEGERS = (
    "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT",
)  # fmt: skip
_NUMBERS = (*_INTEGERS, "FLOAT", "DOUBLE", "DECIMAL")
UNTYPED = '"NULL"'
"""DuckDB's name for the type of a column of bare nulls."""
FAULT = "_fault"
"""The column that says why a row is refused; null if it is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedRows:
    """Rows of a query that cannot be state, all for one reason.

    Attributes:
        why: the reason.
        rows: their number.
        some: up to three of their keys.
    """

    why: str
    rows: int
    some: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformedState:
    """The effect of a transform on the state of one operator.

    Attributes:
        before: live keys at the source; 0 if it had no such operator.
        after: keys that the query returns.
        inserted: keys that the source does not have.
        changed: keys with other values.
        deleted: keys of the source that the query does not return.
        unchanged: keys with the same values.
        key_groups: number of key groups of the new state.
        refused: rows that cannot be state, by reason.
    """

    before: int
    after: int
    inserted: int
    changed: int
    deleted: int
    unchanged: int
    key_groups: int
    refused: tuple[RefusedRows, ...] = ()


def source_sql(schema: OperatorSchema, relation: str, now: Now) -> str:
    """Returns one row per live key of compacted rows: as readers see it, and further columns of a table of state.

    Args:
        schema: the stored schema.
        relation: the rows of a compaction of everything.
        now: the checkpoint's clocks.
    """
    if _is_in_parts(schema):
        return resolving_sql(schema, relation, now)
    more = [
        f"{_unless_expired(f, sql, now_of(schema, now))} AS {quote(name)}"
        for f in schema.fields
        for name, sql in f.state_kind.exported_values(f)
    ]
    return single_sql(schema, relation, now, more=more)


def source_columns(schema: OperatorSchema) -> tuple[tuple[str, str], ...]:
    """Returns (column, SQL type) of `source_sql`, in any order."""
    if _is_in_parts(schema):
        return empty_columns(schema)
    types = {name: of.sql for f in schema.fields for name, of in f.state_kind.imported_columns(f)}
    more = [name for f in schema.fields for name, _ in f.state_kind.exported_values(f)]
    return (*empty_columns(schema), *((name, types[name]) for name in more))


def _is_in_parts(schema: OperatorSchema) -> bool:
    """Whether the rows of a key are several, also in a compaction of everything."""
    window = schema.window
    return bool(schema.maps) or (
        window is not None and (not window.has_row_per_window or schema.interval_join is not None)
    )


def _unless_expired(f: StoredField, sql: str, at: int | None) -> str:
    hidden = expired_sql('coalesce("_last_at", 0)', f, at)
    return sql if hidden is None else f"CASE WHEN {hidden} THEN NULL ELSE {sql} END"


def checked_columns(schema: OperatorSchema, types: Mapping[str, str]) -> str:
    """Returns the select list that gives the answer of a query the types of a table of state, and `FAULT`.

    A number may have any type if its value is exact in the declared one; every other value needs the declared type.

    Args:
        schema: the stored schema of the new state.
        types: DuckDB's type of each column of the answer, by its name in lower case.
    """
    keys, faults, made = {k.name for k in schema.keys}, [], []
    for name, of in given_columns(schema):
        column, found, wanted = quote(name), types[name.lower()], DUCKDB.type(of)
        if name in keys:
            faults.append((f"{column} IS NULL", f"{name} is null"))
        if found == UNTYPED:
            made.append(f"CAST(NULL AS {wanted}) AS {column}")
        elif is_number(found, of):
            cast = f"TRY_CAST({column} AS {wanted})"
            made.append(f"{cast} AS {column}")
            inexact = f"{column} IS NOT NULL AND TRY_CAST({cast} AS {found}) IS DISTINCT FROM {column}"
            faults.append((inexact, f"{name} is not exact as {of.shown}"))
        else:
            made.append(column)
    cases = " ".join(f"WHEN {condition} THEN '{why}'" for condition, why in faults)
    return f"{', '.join(made)}, CAST(CASE {cases} END AS VARCHAR) AS {quote(FAULT)}"


def is_number(found: str, of: FieldType) -> bool:
    """Whether a column of DuckDB's type holds numbers for a field that is one."""
    return of.is_number and found.partition("(")[0] in _NUMBERS


def matched_sql(schema: OperatorSchema, given: str, was: str, compared: Sequence[str]) -> str:
    """Returns keys of given rows, `_key_group`, whether the source has the key (`_was`), and the same row (`_same`).

    Args:
        schema: the stored schema of the new state.
        given: relation of the new rows.
        was: relation of the rows of the source, from `source_sql`.
        compared: the columns that both have.
    """
    keys = key_columns(schema)
    on = " AND ".join(f"g.{key} = w.{key}" for key in keys)
    same = [f"g.{quote(name)} IS NOT DISTINCT FROM w.{quote(name)}" for name in compared]
    alike = " AND ".join(['w."_changed" IS NOT NULL', *same])
    own = ", ".join(f"g.{key}" for key in (*keys, quote("_key_group")))
    return (
        f'SELECT {own}, w."_changed" IS NOT NULL AS "_was", {alike} AS "_same"'
        f" FROM {given} AS g LEFT JOIN {was} AS w ON {on}"
    )


def kept_sql(schema: OperatorSchema, stored: str, matched: str) -> str:
    """Returns the stored rows of keys that are the same, in the key groups of the new state.

    Args:
        schema: the stored schema of the new state, whose columns are those of the stored rows.
        stored: the rows of a compaction of everything.
        matched: relation of `matched_sql`.
    """
    keys = key_columns(schema)
    names = [name for name, _ in run_columns(schema)]
    columns = ", ".join(f'm."{name}"' if name == "_key_group" else f"s.{quote(name)}" for name in names)
    on = " AND ".join(f"s.{key} = m.{key}" for key in keys)
    return f'SELECT {columns} FROM {stored} AS s JOIN (FROM {matched} WHERE "_same") AS m ON {on}'
