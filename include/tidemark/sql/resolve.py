"""The resolving query: from stored rows of a handle to one row per live key, as SQL that runs without Tidemark.

It reads a relation that is the union of the handle's segments, each opened at its version and cut to its range. The
same SQL compacts. Rows of a key are ordered by `_changed`, like their checkpoints: a run has a key once, and a
compacted row keeps the newest `_changed` that it contains.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from tidemark.model.core.canonical import sha256_of
from tidemark.model.core.ttl import Now
from tidemark.model.core.types import FieldType
from tidemark.model.kinds.base.sql import expired_sql, finish, key_columns, merges, now_of, quote
from tidemark.model.portable_sql.dialects import DUCKDB, SPARK, Dialect
from tidemark.model.schema.event_windows import END
from tidemark.model.schema.operator_schema import (
    ACCESS_COLUMNS,
    RUN_COLUMNS,
    Layout,
    OperatorSchema,
    StoredField,
    run_columns,
)
from tidemark.sql.map_entries import compacted_rows, resolved_rows, single_rows
from tidemark.sql.type_conversion import converted_sql

_LONG_AGO = -(2**62)
"""Milliseconds, before all others: a time from which a ttl can be subtracted without an overflow."""
_BEGAN = 'coalesce("_first_at", "_last_at")'


def resolving_sql(
    schema: OperatorSchema, relation: str, now: Now, *, where: str = "", dialect: Dialect = DUCKDB
) -> str:
    """Returns one row per live key: key columns, finished state fields in declaration order, `_changed`.

    Args:
        schema: the operator's stored schema.
        relation: name of the relation (a view, a table, or a parenthesised query).
        now: the checkpoint's clocks: state that has expired by then, and closed windows, are hidden.
        where: an optional condition over key columns and `_key_group`, pushed below the merge.
        dialect: dialect of the engine.
    """
    where = " AND ".join(filter(None, [where and f"({where})", _is_open(schema, now, dialect)]))
    return _resolving(schema, relation, now_of(schema, now), where, dialect)


def parametrised_sql(schema: OperatorSchema, relation: str, dialect: Dialect) -> str:
    """Returns `resolving_sql` with the operator's clock as a parameter; with NULL for it, nothing expires.

    The parameter has the name of the field of `Now` with its value, and is left out if nothing expires. DuckDB needs no
    macro.
    """
    at = f"coalesce({dialect.parameter(f'{schema.clock}_ms')}, {_LONG_AGO})"
    frontier = dialect.instant(dialect.parameter("frontier_ms"))
    where = "" if schema.window is None else f"coalesce({quote(END)} > {frontier}, true)"
    text = _resolving(schema, relation, at, where, dialect)
    return text if dialect.name == "spark" else text.replace("raise_error(", "error(")


def _resolving(schema: OperatorSchema, relation: str, at: int | str | None, where: str, dialect: Dialect) -> str:
    if schema.kind == "process":
        return dialect.text(resolved_rows(schema, _filtered(relation, where), at, dialect))
    finished = [f"{finish(f, schema.keys, dialect, at)} AS {quote(f.name)}" for f in schema.fields]
    columns = ", ".join([*key_columns(schema), *finished, '"_changed"'])
    needs_access = any(expired_sql("", f, at) for f in schema.fields if not f.fold_kind.expires_by_element)
    inner = _merged(schema, _filtered(_windows(schema, relation, dialect), where), dialect, access=needs_access)
    return dialect.text(f'SELECT {columns} FROM ({inner}) AS "_merged"{_where(_is_live(schema, at, dialect))}')


def single_sql(
    schema: OperatorSchema, relation: str, now: Now, *, more: Sequence[str] = (), dialect: Dialect = DUCKDB
) -> str:
    """Returns `resolving_sql` for rows without others of their key: nothing is merged.

    It does not work for a process with maps, whose keys have a row per entry.

    Args:
        schema: see `resolving_sql`.
        relation: see `resolving_sql`.
        now: see `resolving_sql`.
        more: of a fold, further columns over its accumulators.
        dialect: dialect of the engine.
    """
    at = now_of(schema, now)
    if schema.kind == "process":
        return dialect.text(single_rows(schema, relation, at, dialect))
    finished = [f"{finish(f, schema.keys, dialect, at)} AS {quote(f.name)}" for f in schema.fields]
    columns = ", ".join([*key_columns(schema), *finished, *more, '"_changed"'])
    live = " AND ".join(
        filter(None, ["\"_kind\" <> 'tombstone'", _is_unexpired(schema, at, dialect), _is_open(schema, now, dialect)])
    )
    return dialect.text(f"SELECT {columns} FROM {relation} WHERE {live}")


def compacted_sql(schema: OperatorSchema, relation: str, now: Now, *, deepest: bool, dialect: Dialect = DUCKDB) -> str:
    """Returns the rows that a compaction writes, in the columns of `run_columns`.

    Args:
        schema: the operator's stored schema.
        relation: the rows to merge.
        now: the clocks of the checkpoint whose handle is compacted; windows that it has closed are dropped.
        deepest: whether there are no older rows: operands become values, tombstones and expired values are dropped.
        dialect: dialect of the engine.
    """
    at = now_of(schema, now)
    if schema.kind == "process":
        return dialect.text(compacted_rows(schema, relation, at, dialect, deepest=deepest))
    names = [name for name, _ in run_columns(schema)]
    made = _dropped(schema, at, dialect) if deepest else {}
    made |= {"_kind": f"{_kind(schema, deepest)}", "_first_at": 'nullif("_first_at", "_last_at")'}
    columns = ", ".join(f"{made[n]} AS {quote(n)}" if n in made else quote(n) for n in names)
    live = _is_live(schema, at, dialect, stored=True) if deepest else ""
    inner = _merged(schema, _kept(schema, relation, now, dialect, deepest=deepest), dialect, access=True)
    return dialect.text(f'SELECT {columns} FROM ({inner}) AS "_merged"{_where(live)}')


def empty_columns(schema: OperatorSchema) -> tuple[tuple[str, str], ...]:
    """Returns (column, SQL type) of the resolved frame, for a handle without segments."""
    keys = tuple((k.name, k.type.sql) for k in schema.keys)
    return (*keys, *((f.name, f.type.sql) for f in schema.fields), ("_changed", "BIGINT"))


def stored_columns(schema: OperatorSchema) -> tuple[str, ...]:
    """Returns the stored columns that the queries of this module read."""
    return tuple(name for name, _ in run_columns(schema))


def _is_open(schema: OperatorSchema, now: Now, dialect: Dialect) -> str:
    """Returns the condition that the window of a row is not closed; empty if that is not possible."""
    frontier = now.frontiers.get(schema.uid)
    return "" if schema.window is None or frontier is None else f"{quote(END)} > {dialect.instant(frontier)}"


def _windows(schema: OperatorSchema, relation: str, dialect: Dialect) -> str:
    """Returns stored rows with the bounds of their windows."""
    if schema.window is None:
        return relation
    keys = [quote(k.name) for k in schema.own_keys]
    return schema.window.windows_sql(relation, keys, stored_columns(schema), dialect)


def _kept(schema: OperatorSchema, relation: str, now: Now, dialect: Dialect, *, deepest: bool) -> str:
    """Returns the rows that a compaction keeps: those of a session that is not closed, once all its rows are there."""
    window, frontier = schema.window, now.frontiers.get(schema.uid)
    if window is not None and window.is_merged:
        merged = _windows(schema, relation, dialect)
        return _filtered(merged, _is_open(schema, now, dialect)) if deepest else merged
    if window is None or frontier is None:
        return relation
    return _filtered(relation, window.outlives_sql(str(frontier), dialect))


def _merged(schema: OperatorSchema, relation: str, dialect: Dialect, *, access: bool) -> str:
    """Returns one row per key with merged accumulators, `_changed`, `_key_group`, and columns that the kind needs."""
    keys = key_columns(schema)
    columns = [f"{sql} AS {quote(name)}" for f in schema.fields for name, sql in merges(f, schema.keys, dialect)]
    columns += [f"bool_or({_cut(f)}) AS {_cut(f)}" for f in schema.fields if f.is_cut]
    if access:
        columns += _accesses(schema)
    if not schema.is_plain:
        columns += ['bool_or("_kind" <> \'tombstone\') AS "_live"', 'max("_floor") AS "_floor"']
    columns += ['max("_changed") AS "_changed"', 'min("_key_group") AS "_key_group"']
    rows = relation if schema.is_plain else f'({_history(schema, relation)}) AS "_history"'
    return f"SELECT {', '.join([*keys, *columns])} FROM {rows} GROUP BY {', '.join(keys)}"


def _accesses(schema: OperatorSchema) -> list[str]:
    """Returns the first and last access of a key: that of a delete counts only if nothing follows it."""
    first, last = f"min({_BEGAN})", 'max("_last_at")'
    if schema.shadows:
        kept = "FILTER (WHERE \"_kind\" <> 'tombstone')"
        first, last = f"coalesce({first} {kept}, {first})", f"coalesce({last} {kept}, {last})"
    return [f'{first} AS "_first_at"', f'{last} AS "_last_at"']


def _history(schema: OperatorSchema, relation: str) -> str:
    """Returns the rows that count: those since the newest value or tombstone, and for each field since its last cut."""
    keys = ", ".join(key_columns(schema))
    over = f"OVER (PARTITION BY {keys})"
    cut = [f for f in schema.fields if f.is_cut]
    floor = f'max(CASE WHEN "_kind" <> \'operand\' THEN "_changed" END) {over}'
    rows = f'SELECT *, {floor} AS "_floor" FROM {relation}'
    before = f'lag("_last_at") OVER (PARTITION BY {keys} ORDER BY "_changed")'
    rows = (
        f'SELECT *, {before} AS "_before" FROM ({rows}) AS "_floored" WHERE "_floor" IS NULL OR "_changed" >= "_floor"'
    )
    starts = "".join(f", {_start(f)} {over} AS {quote(f'{f.name}__from')}" for f in cut)
    rows = f'SELECT *{starts} FROM ({rows}) AS "_ordered"'
    kept = [*key_columns(schema), *(sql for f in schema.fields for sql in _masked(f))]
    kept += [quote(name) for name, _ in (*ACCESS_COLUMNS, *RUN_COLUMNS)] + ['"_floor"']
    return f'SELECT {", ".join(kept)} FROM ({rows}) AS "_started"'


def _start(field: StoredField) -> str:
    assert field.ttl is not None  # noqa: S101  (for the type checker: it is cut)
    gap = f'{_BEGAN} - "_before" >= {field.ttl.ms}'
    return f'max(CASE WHEN coalesce({_cut(field)}, false) OR {gap} THEN "_changed" END)'


def _masked(field: StoredField) -> list[str]:
    if not field.is_cut:
        return [quote(name) for name, _ in field.columns]
    start = quote(f"{field.name}__from")
    counts = f'{start} IS NULL OR "_changed" >= {start}'
    held = [f"CASE WHEN {counts} THEN {quote(n)} END AS {quote(n)}" for n, _ in field.accumulators]
    return [*held, f"({start} IS NOT NULL) AS {_cut(field)}"]


def _cut(field: StoredField) -> str:
    return quote(f"{field.name}__cut")


def _kind(schema: OperatorSchema, deepest: bool) -> str:
    if deepest:
        return "'value'"
    if schema.is_plain:
        return "'operand'"
    return "CASE WHEN \"_floor\" IS NULL THEN 'operand' WHEN \"_live\" THEN 'value' ELSE 'tombstone' END"


def _is_live(schema: OperatorSchema, now: int | str | None, dialect: Dialect, *, stored: bool = False) -> str:
    """Returns the condition that a merged key is live; `stored`: that it must be kept, because readers may see it."""
    merged = "" if schema.is_plain else '"_live"'
    return " AND ".join(filter(None, [merged, _is_unexpired(schema, now, dialect, stored=stored)]))


def _is_unexpired(schema: OperatorSchema, now: int | str | None, dialect: Dialect, *, stored: bool = False) -> str:
    """Returns the condition that some field has not expired; empty if one never does."""
    some = [_is_present(f, now, dialect, stored=stored) for f in schema.fields]
    return f"({' OR '.join(some)})" if all(some) else ""


def _is_present(field: StoredField, now: int | str | None, dialect: Dialect, *, stored: bool) -> str:
    """Returns the condition that a field has not expired; empty if it never does."""
    hidden = expired_sql('"_last_at"', field, now)
    if hidden is None or field.ttl is None or (stored and not field.ttl.clean_up_in_background):
        return ""
    return field.fold_kind.is_present(field, hidden, dialect, now)


def _dropped(schema: OperatorSchema, now: int | str | None, dialect: Dialect) -> dict[str, str]:
    """Returns columns of a fold without expired values, for the deepest level."""
    made: dict[str, str] = {}
    for f in schema.fields:
        hidden = expired_sql('"_last_at"', f, now)
        if hidden is None or f.ttl is None or not f.ttl.clean_up_in_background:
            continue
        made |= f.fold_kind.drop_expired(f, hidden, dialect, now)
    return made


def _filtered(relation: str, where: str) -> str:
    return f'(SELECT * FROM {relation} WHERE {where}) AS "_found"' if where else relation


def _where(condition: str) -> str:
    return f" WHERE {condition}" if condition else ""


# Reads rows of an earlier stored schema as rows of the current one: renames, casts, missing columns.
#
# Readers and compactions select through it, table by table, before anything merges. So every query of `sql.resolve`
# sees one set of columns, whichever declaration wrote a row.
def mapped_sql(schema: OperatorSchema, table: str, relation: str, dialect: Dialect) -> str:
    """Returns the query that turns a table's rows into rows of `run_columns(schema)`, in that order.

    Args:
        schema: the stored schema of the checkpoint that is read.
        table: the table, as a segment names it.
        relation: its stored rows.
        dialect: dialect of the engine.
    """
    wanted = columns(schema, table, dialect)
    selected = ", ".join(f"{sql} AS {quote(name)}" for name, sql in wanted)
    condition = counts(schema, table)
    return dialect.text(f"SELECT {selected} FROM {relation}{f' WHERE {condition}' if condition else ''}")


def columns(schema: OperatorSchema, table: str, dialect: Dialect) -> list[tuple[str, str]]:
    """Returns (column of `run_columns(schema)`, expression over a table's columns), in order."""
    names, layout = [name for name, _ in run_columns(schema)], schema.layout(table)
    if layout is None:
        return [(name, quote(name)) for name in names]
    made = {name: sql for f in schema.fields for name, sql in _of_field(f, layout.fields.get(f.name), dialect)}
    if schema.maps:
        made["_field"] = _entry_of(schema, layout) if layout.has_entries else "CAST(NULL AS STRING)"
    return [(name, made.get(name, quote(name))) for name in names]


def counts(schema: OperatorSchema, table: str) -> str:
    """Returns the condition on the rows that count, which excludes entries of dropped maps; empty if all do."""
    layout = schema.layout(table)
    if layout is None or not layout.has_entries:
        return ""
    kept = ", ".join(f"'{layout.fields[f.name].name}'" for f in schema.maps if f.name in layout.fields)
    return '"_field" IS NULL' + (f' OR "_field" IN ({kept})' if kept else "")


def table_columns(schema: OperatorSchema, table: str) -> tuple[tuple[str, str], ...]:
    """Returns (column, SQL type) of a table, as far as they are read, in no particular order."""
    layout = schema.layout(table)
    if layout is None:
        return run_columns(schema)
    held = {name for f in schema.fields for name, _ in f.columns} | {"_field"}
    own = tuple((name, sql) for name, sql in run_columns(schema) if name not in held)
    entries = (("_field", "STRING"),) if layout.has_entries else ()
    return (*own, *entries, *((name, of.sql) for f in layout.fields.values() for name, of in f.columns))


def absent(field: StoredField) -> tuple[object, ...]:
    """Returns the value of each column of a field in rows that were written without it."""
    found = field.state_kind.absent(field)
    return (*found, None) if field.is_cut else found


def _of_field(field: StoredField, there: StoredField | None, dialect: Dialect) -> Iterator[tuple[str, str]]:
    if there is None:
        for (name, of), value in zip(field.columns, absent(field), strict=True):
            yield name, _literal(of, value, dialect)
        return
    for (name, of), (was, stored) in zip(field.accumulators, there.accumulators, strict=True):
        yield name, converted_sql(quote(was), stored, of, dialect)
    if field.is_cut:
        cut = quote(f"{there.name}__cut")
        yield f"{field.name}__cut", cut if there.is_cut else "CAST(NULL AS BOOLEAN)"


def _literal(of: FieldType, value: object, dialect: Dialect) -> str:
    shown = "NULL" if value is None else dialect.or_empty("NULL") if value == () else str(value)
    return f"CAST({shown} AS {dialect.type(of)})"


def _entry_of(schema: OperatorSchema, layout: Layout) -> str:
    names = {layout.fields[f.name].name: f.name for f in schema.maps if f.name in layout.fields}
    renamed = " ".join(f"WHEN '{was}' THEN '{name}'" for was, name in names.items() if was != name)
    return f'CASE "_field" {renamed} ELSE "_field" END' if renamed else '"_field"'


# The resolving query stored for every plan: texts that other engines fill in and run without Tidemark.
#
# A text depends only on the stored schema, not on rows or a checkpoint, so it is put once, under its own hash. The
# texts of an operator are called `duckdb` and `spark` for the query over the relation `segments`, and
# `<dialect>:<folder>` for tables of an earlier stored schema: the query over the relation `segment` that turns a
# segment in that folder into rows of the current schema. docs/how-to/read-state.md explains how to fill them in.
_CLOCKS = {"event_time": "body.sealed.facts.watermark_ms", "logical_time": "body.plan.logical_time_ms"}
"""Location of each clock's value in a manifest."""


def stored_texts(schema: OperatorSchema) -> dict[str, str]:
    """Returns the texts of an operator by name; none in the dialect of an engine that cannot read it."""
    return dict(_texts(json.dumps(schema.to_json())))


@lru_cache(maxsize=256)
def _texts(stored: str) -> dict[str, str]:
    """Cached by the schema as in manifests, because the plans of a pipeline mostly have the same one."""
    schema = OperatorSchema.from_json(json.loads(stored))
    if not schema.keeps_state:
        return {}
    made: dict[str, str] = {}
    for dialect in (DUCKDB, SPARK) if schema.is_portable else (SPARK,):
        made[dialect.name] = _whole(schema, dialect)
        for older in schema.older:
            text = mapped_sql(schema, f"{older.folder}/runs", "segment", dialect)
            head = f"-- Rows of a relation `segment`, a table below {older.folder}, in the columns of today.\n"
            made[f"{dialect.name}:{older.folder}"] = f"{head}{text}\n"
    return made


def names_of(texts: Mapping[str, str]) -> dict[str, str]:
    """Returns the hash of each text."""
    return {name: sha256_of(text.encode()) for name, text in texts.items()}


def bind_clocks(text: str, uid: str, now: Now, dialect: Dialect) -> str:
    """Returns a stored text of an operator with a checkpoint's clocks for its parameters, without its comments."""
    values = {"event_time_ms": now.event_time_ms, "logical_time_ms": now.logical_time_ms}
    values["frontier_ms"] = now.frontiers.get(uid)
    lines = [line for line in text.splitlines() if not line.startswith("--")]
    found = "\n".join(lines)
    for name, value in values.items():
        found = re.sub(rf"{re.escape(dialect.parameter(name))}\b", "NULL" if value is None else str(value), found)
    return found


def _whole(schema: OperatorSchema, dialect: Dialect) -> str:
    query = parametrised_sql(schema, "segments", dialect)
    clock = dialect.parameter(f"{schema.clock}_ms")
    head = [
        f"State of {schema.uid}: one row per live key, in the SQL of {dialect.name}.",
        "segments: a relation, the union of the operator's segments, each at its version and cut to its range;",
        f"its columns: {', '.join(stored_columns(schema))}.",
    ]
    if clock in query:
        head.append(f"{clock}: {_CLOCKS[schema.clock]} of the manifest, NULL where that is null.")
    if schema.window is not None:
        frontier = f"body.sealed.facts.clocks.{schema.uid}.watermark_ms of the manifest, NULL where that is null"
        head.append(f"{dialect.parameter('frontier_ms')}: {frontier}.")
    return "".join(f"-- {line}\n" for line in head) + query + "\n"
