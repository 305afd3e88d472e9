"""What each kind of state field is in SQL: partial over records, merge of partials, finish at read (A5, A6).

Identifiers stand in double quotes (ANSI). Partials are Spark SQL over the decoded frame (`topic`, `partition`,
`offset`, `event_time`, `record`, and `_at`, the access time). Merge and finish are the same in Spark and in DuckDB,
but for what a `Dialect` knows. Each merge is associative; those of lists go by `_changed`, the others commute.
"""

import re
from collections.abc import Callable, Sequence

from tidemark.errors import UsageError
from tidemark.model.aggregates import Aggregate, call_of, finish_sql, merge_sql, partial_sql, substituted
from tidemark.model.dialects import DUCKDB_MACROS as DUCKDB_MACROS
from tidemark.model.dialects import Dialect
from tidemark.model.schema import KeyColumn, OperatorSchema, StoredField
from tidemark.model.sinks import PER_RECORD
from tidemark.model.ttl import Now
from tidemark.model.types import FieldType

OVERFLOW = "tidemark_state_overflow"
"""Marks an overflow in the message of a foreign error: `tidemark_state_overflow <field> of key (<key>) <why>`."""
_FOUND = re.compile(rf"{OVERFLOW} (.*? of key \(.*?\) does not fit[a-z0-9 ]*)", re.DOTALL)
_NUMBER = ", 'n', \"_n\""
_LEAST, _GREATEST = -(2**63), 2**63 - 1


def spark(sql: str) -> str:
    """The same text for Spark without `spark.sql.ansi.doubleQuotedIdentifiers`: identifiers in backticks."""
    return sql.replace('"', "`")


def quoted(name: str) -> str:
    """A column name as an ANSI identifier."""
    return f'"{name}"'


def record_path(source: str) -> str:
    """The Spark SQL path of a record field in the decoded frame."""
    return ".".join(quoted(step) for step in ("record", *source.split(".")))


def partials(field: StoredField, only: str = "", *, emitted: bool = False) -> list[tuple[str, str]]:
    """(column, aggregate expression over the records of a key) of each accumulator of a field.

    Args:
        field: the field.
        only: a condition on records; without it all count.
        emitted: whether a process emitted the records: several have one offset then, and `_n` is in the frame.
    """
    names = [name for name, _ in field.accumulators]
    return list(zip(names, _partial_sql(field, only, emitted=emitted), strict=True))


def merges(field: StoredField, keys: Sequence[KeyColumn], dialect: Dialect) -> list[tuple[str, str]]:
    """(column, aggregate expression over stored rows of a key) of each accumulator."""
    if field.aggregate is not None:
        return aggregate_merges(field, field.aggregate, keys, dialect)
    return [(name, _merge_sql(field, name, of, keys, dialect)) for name, of in field.accumulators]


def finish(field: StoredField, keys: Sequence[KeyColumn], dialect: Dialect, now: int | str | None) -> str:
    """The expression of a fold's field over merged accumulators.

    Args:
        field: the field.
        keys: for messages.
        dialect: of the engine.
        now: the time on the operator's clock, in milliseconds, or an expression of it; None = nothing expires.
    """
    if field.kind == "list":
        return _bounded(field, list_values(field, dialect, now), keys)
    value = _finish_sql(field, keys, dialect)
    if field.kind == "distinct":
        value = _bounded(field, dialect.or_empty(quoted(field.name)), keys)
    hidden = expired('coalesce("_last_at", 0)', field, now)
    empty = dialect.or_empty("NULL") if field.kind == "distinct" else "NULL"
    return value if hidden is None else f"CASE WHEN {hidden} THEN {empty} ELSE {value} END"


def expired(at: str, field: StoredField, now: int | str | None) -> str | None:
    """The condition that a value last accessed at `at` is hidden; None where that cannot be.

    Args:
        at: the access time.
        field: the field.
        now: milliseconds, or an expression of them.
    """
    if field.ttl is None or not field.ttl.hides or now is None:
        return None
    return f"{at} <= {now - field.ttl.ms}" if isinstance(now, int) else f"{at} <= {now} - {field.ttl.ms}"


def list_values(field: StoredField, dialect: Dialect, now: int | str | None) -> str:
    """The values of a stored list, without those that are expired."""
    kept = live_elements(field, dialect, now)
    return dialect.or_empty(dialect.transform(kept, "e", 'e."value"'))


def live_elements(field: StoredField, dialect: Dialect, now: int | str | None) -> str:
    """The stored elements of a list that are not expired."""
    hidden = expired('e."at"', field, now)
    column = quoted(field.name)
    return column if hidden is None else dialect.filter(column, "e", f"NOT ({hidden})")


def overflow_message(field: str, keys: Sequence[KeyColumn], why: str) -> str:
    """The SQL expression of the message that names a key whose state does not fit."""
    names = ", ', ', ".join(f"CAST({quoted(k.name)} AS STRING)" for k in keys)
    return f"concat('{OVERFLOW} {field} of key (', {names}, ') {why}')"


def overflow_in(message: str) -> str | None:
    """What overflowed, and of which key, if a foreign error's message says so."""
    found = _FOUND.search(message)
    return found[1] if found else None


def key_columns(schema: OperatorSchema) -> list[str]:
    """Quoted key columns."""
    return [quoted(k.name) for k in schema.keys]


def now_of(schema: OperatorSchema, now: Now) -> int | None:
    """The time on an operator's clock."""
    return now.of(schema.clock)


def _finish_sql(field: StoredField, keys: Sequence[KeyColumn], dialect: Dialect) -> str:
    column = quoted(field.name)
    if field.aggregate is not None:
        return finish_sql_of(field, dialect)
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


def _partial_sql(field: StoredField, only: str, *, emitted: bool) -> list[str]:
    where = _where(only)
    if field.kind == "count":
        return [f"count(1){where}"]
    if field.aggregate is not None:
        return aggregate_partials(field.aggregate, where)
    value = record_path(field.source)
    if field.kind in ("first", "latest"):
        known = f"{value} IS NOT NULL" if field.ignore_nulls else ""
        return [f"{_picked_sql(field.kind, value, emitted=emitted)}{_where(only, known)}"]
    if field.kind == "mean":
        return [_sum_sql(value, field.over, where), f"count({value}){where}"]
    if field.kind == "distinct":
        return [f"array_sort(collect_set({value}){where})"]
    if field.kind == "list":
        place = "'topic', \"topic\", 'partition', \"partition\", 'offset', \"offset\"" + _NUMBER * emitted
        placed = f"named_struct({place}, 'held', named_struct('at', \"_at\", 'value', {value}))"
        collected = f"collect_list({placed}){_where(only, f'{value} IS NOT NULL')}"
        return [f"transform(array_sort({collected}), r -> r.held)"]
    return [_sum_sql(value, field.over, where) if field.kind == "sum" else f"{field.kind}({value}){where}"]


def _picked_sql(kind: str, value: str, *, emitted: bool) -> str:
    """The first or the latest value with its place.

    What is kept of an emitted record's place has one number for offset and `_n`. It holds the last digit of `_n` only,
    as in all releases: it is compared with those of other checkpoints, never within one source record.
    """
    which = "min" if kind == "first" else "max"
    place = "'at', \"event_time\", 'topic', \"topic\", 'partition', CAST(\"partition\" AS BIGINT), 'offset', "
    if not emitted:
        return f"{which}(named_struct({place}\"offset\", 'value', {value}))"
    kept = f'named_struct({place}"offset" * {PER_RECORD} + "_n" % {PER_RECORD}, \'value\', {value})'
    return f'{which}_by({kept}, named_struct({place}"offset"{_NUMBER}))'


def _where(*conditions: str) -> str:
    known = " AND ".join(f"({c})" for c in conditions if c)
    return f" FILTER (WHERE {known})" if known else ""


def _sum_sql(value: str, over: FieldType, where: str) -> str:
    if over.kind == "decimal":
        return f"CAST(sum(CAST({value} AS DECIMAL(38,{over.scale}))){where} AS DECIMAL(38,{over.scale}))"
    return f"sum({value}){where}"


def _merge_sql(field: StoredField, name: str, of: FieldType, keys: Sequence[KeyColumn], dialect: Dialect) -> str:
    column = quoted(name)
    if field.kind in ("first", "min"):
        return f"min({column})"
    if field.kind in ("latest", "max"):
        return f"max({column})"
    if field.kind == "distinct":
        return f"array_sort(array_distinct(flatten(array_agg({column}){_where(f'{column} IS NOT NULL')})))"
    if field.kind == "list":
        return _joined(column, dialect)
    if of.kind == "int":
        if field.kind == "count" or (field.kind == "mean" and name.endswith("__count")):
            return f"CAST(sum({column}) AS BIGINT)"
        total, fits = dialect.exact_sum(column)
        return _checked(f"max({column})", fits, total, field.name, keys)
    if of.kind == "decimal":
        return f"CAST(sum({column}) AS {of.sql})"
    return f"sum({column})"


def _joined(column: str, dialect: Dialect) -> str:
    placed = dialect.struct([("placed", quoted("_changed")), ("held", column)])
    collected = f"array_sort(array_agg({placed}){_where(f'{column} IS NOT NULL')})"
    held = dialect.transform(collected, "r", 'r."held"')
    return f"flatten({held})"


def aggregate_partials(made: Aggregate, where: str) -> list[str]:
    """The partials of an author's aggregate, in Spark SQL."""
    if made.spark_only:
        types = (of.sql for _, of in made.accumulators)
        return [
            f"CAST({substituted(text, [name for name, _ in made.inputs], record_path)}{where} AS {of})"
            for text, of in zip(made.partial, types, strict=True)
        ]
    return [partial_sql(text, dict(made.inputs), record_path, where).sql for text in made.partial]


def aggregate_merges(
    field: StoredField, made: Aggregate, keys: Sequence[KeyColumn], dialect: Dialect
) -> list[tuple[str, str]]:
    """(column, aggregate expression over stored rows of a key) of each accumulator of an author's aggregate."""
    refuse_without_spark(field, dialect)
    found = []
    for text, (column, of) in zip(made.merge, field.accumulators, strict=True):
        if made.spark_only:
            names = [name for name, _ in made.accumulators]
            found.append((column, f"CAST({substituted(text, names, _accumulator_of(field))} AS {of.sql})"))
            continue
        function, _ = call_of(text)
        merged = merge_sql(function, quoted(column), of)
        if function == "sum" and of.kind == "int":
            merged = _whole(merged, field.name, keys)
        found.append((column, merged))
    return found


def refuse_without_spark(field: StoredField, dialect: Dialect) -> None:
    """Raises where only Spark can read a field.

    Raises:
        UsageError: naming it.
    """
    if field.aggregate is not None and field.aggregate.spark_only and dialect.name != "spark":
        raise UsageError(
            f"{field.name} is declared spark_only: it cannot be read without Spark",
            next="read it with tidemark.read_state in a Spark session, or write it in the portable subset.",
        )


def finish_sql_of(field: StoredField, dialect: Dialect) -> str:
    """The finish of an author's aggregate over the columns of its merged accumulators."""
    made = field.aggregate
    assert made is not None  # noqa: S101  (for the type checker)
    refuse_without_spark(field, dialect)
    if made.spark_only:
        names = [name for name, _ in made.accumulators]
        return f"CAST({substituted(made.finish, names, _accumulator_of(field))} AS {field.type.sql})"
    return finish_sql(made, _accumulator_of(field)).sql


def _accumulator_of(field: StoredField) -> Callable[[str], str]:
    return lambda name: quoted(f"{field.name}__{name}")


def _bounded(field: StoredField, values: str, keys: Sequence[KeyColumn]) -> str:
    """The visible values, if the limit allows so many: what has expired does not count, whenever it is dropped."""
    message = overflow_message(field.name, keys, f"does not fit its limit of {field.limit}")
    return f"CASE WHEN cardinality({values}) <= {field.limit} THEN {values} ELSE raise_error({message}) END"


def _whole(wide: str, name: str, keys: Sequence[KeyColumn]) -> str:
    """A wide sum as the 64-bit integer that it must be."""
    fits = f"{wide} IS NULL OR {wide} BETWEEN {_LEAST} AND {_GREATEST}"
    return _checked(wide, fits, f"CAST({wide} AS BIGINT)", name, keys)


def _checked(value: str, fits: str, finished: str, name: str, keys: Sequence[KeyColumn]) -> str:
    message = overflow_message(name, keys, "does not fit its type or its limit")
    return f"CASE WHEN {value} IS NULL OR {fits} THEN {finished} ELSE raise_error({message}) END"
