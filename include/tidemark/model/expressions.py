"""What each kind of state field is in SQL: partial over records, merge of partials, finish at read (A5, A6).

Strings only; identifiers stand in double quotes (ANSI). Partials are Spark SQL over the decoded frame (`topic`,
`partition`, `offset`, `event_time`, `record`). Merge and finish are portable: the same text means the same in Spark
and in DuckDB, but for the quote character of identifiers (see `spark`) and for `raise_error`, which DuckDB learns by
the macro `DUCKDB_MACROS`. Each merge is associative and commutative, so runs may be cut and regrouped anywhere.
"""

import re
from collections.abc import Sequence

from tidemark.model.schema import KeyColumn, OperatorSchema, StoredField
from tidemark.model.types import FieldType

DUCKDB_MACROS = "CREATE OR REPLACE TEMP MACRO raise_error(message) AS error(message)"
"""What DuckDB must be told once per connection; other engines have `raise_error` or drop the branch."""
OVERFLOW = "tidemark_state_overflow"
"""Marks an overflow in the message of a foreign error: `tidemark_state_overflow <field> of key (<key>) <why>`."""
_FOUND = re.compile(rf"{OVERFLOW} (.*? of key \(.*?\) does not fit[a-z0-9 ]*)", re.DOTALL)
_LEAST, _GREATEST = -(2**63), 2**63 - 1


def spark(sql: str) -> str:
    """The same text for Spark without `spark.sql.ansi.doubleQuotedIdentifiers`: identifiers in backticks.

    Names are on an allow-list and literals hold no double quotes, so the exchange is exact.
    """
    return sql.replace('"', "`")


def quoted(name: str) -> str:
    """A column name as an ANSI identifier."""
    return f'"{name}"'


def record_path(source: str) -> str:
    """The Spark SQL path of a record field in the decoded frame."""
    return ".".join(quoted(step) for step in ("record", *source.split(".")))


def partials(field: StoredField) -> list[tuple[str, str]]:
    """(column, aggregate expression over the records of a key) of each accumulator of a field."""
    names = [name for name, _ in field.accumulators]
    return list(zip(names, _partial_sql(field), strict=True))


def merges(field: StoredField, keys: Sequence[KeyColumn]) -> list[tuple[str, str]]:
    """(column, aggregate expression over stored rows of a key) of each accumulator: the portable merge."""
    return [(name, _merge_sql(field, name, of, keys)) for name, of in field.accumulators]


def finish(field: StoredField, keys: Sequence[KeyColumn]) -> str:
    """The portable expression of the field's value over merged accumulators."""
    column = quoted(field.name)
    if field.kind in ("first", "latest"):
        return f'{column}."value"'
    if field.kind == "mean":
        # Through text, because engines convert wide decimals to doubles with different rounding.
        total = quoted(f"{field.name}__sum")
        as_double = total if field.over.kind == "float" else f"CAST(CAST({total} AS STRING) AS DOUBLE)"
        count = quoted(f"{field.name}__count")
        return f"CASE WHEN {count} > 0 THEN {as_double} / CAST({count} AS DOUBLE) END"
    if field.kind == "sum" and field.over.kind == "decimal":
        bound = f"CAST(1{'0' * (field.type.digits - field.type.scale)} AS DECIMAL(38,0))"
        if field.type.digits == 38:
            return column
        fits = f"{column} > -{bound} AND {column} < {bound}"
        return _checked(column, fits, f"CAST({column} AS {field.type.sql})", field.name, keys)
    return column


def overflow_message(field: str, keys: Sequence[KeyColumn], why: str) -> str:
    """The SQL expression of the message that names a key whose state does not fit."""
    names = ", ', ', ".join(f"CAST({quoted(k.name)} AS STRING)" for k in keys)
    return f"concat('{OVERFLOW} {field} of key (', {names}, ') {why}')"


def overflow_in(message: str) -> str | None:
    """What overflowed, and of which key, if a foreign error's message says so."""
    found = _FOUND.search(message)
    return found[1] if found else None


def _partial_sql(field: StoredField) -> list[str]:
    if field.kind == "count":
        return ["count(1)"]
    value = record_path(field.source)
    if field.kind in ("first", "latest"):
        which = "min" if field.kind == "first" else "max"
        only = f" FILTER (WHERE {value} IS NOT NULL)" if field.ignore_nulls else ""
        order = "'at', \"event_time\", 'topic', \"topic\", 'partition', CAST(\"partition\" AS BIGINT)"
        return [f"{which}(named_struct({order}, 'offset', \"offset\", 'value', {value})){only}"]
    if field.kind == "mean":
        return [_sum_sql(value, field.over), f"count({value})"]
    if field.kind == "distinct":
        found = f"array_sort(collect_set({value}))"
        return [found]
    return [_sum_sql(value, field.over) if field.kind == "sum" else f"{field.kind}({value})"]


def _sum_sql(value: str, over: FieldType) -> str:
    if over.kind == "decimal":
        return f"CAST(sum(CAST({value} AS DECIMAL(38,{over.scale}))) AS DECIMAL(38,{over.scale}))"
    return f"sum({value})"


def _merge_sql(field: StoredField, name: str, of: FieldType, keys: Sequence[KeyColumn]) -> str:
    column = quoted(name)
    if field.kind in ("first", "min"):
        return f"min({column})"
    if field.kind in ("latest", "max"):
        return f"max({column})"
    if field.kind == "distinct":
        merged = f"array_sort(array_distinct(flatten(array_agg({column}))))"
        return _checked(merged, f"cardinality({merged}) <= {field.limit}", merged, field.name, keys)
    if of.kind == "int":
        wide = f"sum(CAST({column} AS DECIMAL(38,0)))"
        fits = f"{wide} IS NULL OR {wide} BETWEEN {_LEAST} AND {_GREATEST}"
        return _checked(wide, fits, f"CAST({wide} AS BIGINT)", field.name, keys)
    if of.kind == "decimal":
        return f"CAST(sum({column}) AS {of.sql})"
    return f"sum({column})"


def _checked(value: str, fits: str, finished: str, name: str, keys: Sequence[KeyColumn]) -> str:
    message = overflow_message(name, keys, "does not fit its type or its limit")
    return f"CASE WHEN {value} IS NULL OR {fits} THEN {finished} ELSE raise_error({message}) END"


def key_columns(schema: OperatorSchema) -> list[str]:
    """Quoted key columns."""
    return [quoted(k.name) for k in schema.keys]
