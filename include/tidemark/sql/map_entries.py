"""Rows of a process: one row per key with its values and lists, one row per entry of a map; the newest of each counts.

A key that the batch touched always gets its own row, whose `_changed` is that of the key. Its tombstone hides older
values and entries; entries written by the same checkpoint are above it.
"""

from tidemark.model.kinds.base.sql import expired_sql, key_columns, quote
from tidemark.model.portable_sql.dialects import Dialect
from tidemark.model.schema.operator_schema import OperatorSchema, StoredField

_IS_VALUE = "\"_kind\" <> 'tombstone'"


def resolved_rows(schema: OperatorSchema, relation: str, now: int | str | None, dialect: Dialect) -> str:
    """Returns one row per live key: key columns, state fields in declaration order, `_changed`."""
    rows = _newest(schema, relation)
    if schema.maps:
        rows = _per_key(schema, rows, now, dialect)
    fields = [f"{f.process_kind.finish(f, dialect, now)} AS {quote(f.name)}" for f in schema.fields]
    columns = ", ".join([*key_columns(schema), *fields, '"_changed"'])
    alive = " OR ".join(f.process_kind.is_present(f, dialect, now) for f in schema.fields)
    live = '"_live"' if schema.maps else _IS_VALUE
    return f'SELECT {columns} FROM ({rows}) AS "_newest" WHERE {live} AND ({alive})'


def single_rows(schema: OperatorSchema, relation: str, now: int | str | None, dialect: Dialect) -> str:
    """Returns the same as `resolved_rows` for rows without others of their key, for a process without maps."""
    fields = [f"{f.process_kind.finish(f, dialect, now)} AS {quote(f.name)}" for f in schema.fields]
    columns = ", ".join([*key_columns(schema), *fields, '"_changed"'])
    alive = " OR ".join(f.process_kind.is_present(f, dialect, now) for f in schema.fields)
    return f"SELECT {columns} FROM {relation} WHERE {_IS_VALUE} AND ({alive})"


def compacted_rows(schema: OperatorSchema, relation: str, now: int | None, dialect: Dialect, *, deepest: bool) -> str:
    """Returns the rows that a compaction writes, in the order of `run_columns`.

    Args:
        schema: the stored schema.
        relation: the rows to merge.
        now: the time on the operator's clock.
        dialect: dialect of the engine.
        deepest: whether tombstones and expired values may be dropped.
    """
    names = [k.name for k in schema.keys]
    names += ["_field"] if schema.maps else []
    names += [name for f in schema.fields for name, _ in f.columns]
    names += ["_kind", "_changed", "_key_group"]
    rows = _newest(schema, relation)
    if not deepest:
        return f'SELECT {", ".join(map(quote, names))} FROM ({rows}) AS "_newest"'
    swept = {name: sql for f in schema.fields for name, sql in _swept(f, now, dialect).items()}
    columns = ", ".join(f"{swept[n]} AS {quote(n)}" if n in swept else quote(n) for n in names)
    keep = [_IS_VALUE]
    if schema.maps:
        entries = " OR ".join(f"({_is_entry(f)}{_unless(_expired_if_swept(_at(f), f, now))})" for f in schema.maps)
        rows = (
            f"SELECT *, max(CASE WHEN {_IS_VALUE} AND ({entries}) THEN 1 ELSE 0 END)"
            f' OVER (PARTITION BY {", ".join(key_columns(schema))}) AS "_entries" FROM ({rows}) AS "_newest"'
        )
        own = [_is_kept(f, now, dialect) for f in schema.fields if not f.process_kind.is_stored_by_entry]
        keep.append("(" + " OR ".join(['"_field" IS NOT NULL', '"_entries" = 1', *own]) + ")")
        keep.append(f'("_field" IS NULL OR {entries})')
    else:
        keep.append("(" + " OR ".join(_is_kept(f, now, dialect) for f in schema.fields) + ")")
    return f'SELECT {columns} FROM ({rows}) AS "_swept" WHERE {" AND ".join(keep)}'


def _newest(schema: OperatorSchema, relation: str) -> str:
    """Returns the newest row of each key and of each entry, without entries below their key's tombstone."""
    keys = key_columns(schema)
    if not schema.maps:
        newest = f'max("_changed") OVER (PARTITION BY {", ".join(keys)})'
        return f'SELECT * FROM (SELECT *, {newest} AS "_top" FROM {relation}) AS "_all" WHERE "_changed" = "_top"'
    entry = [*keys, '"_field"', *(quote(f"{f.name}__key") for f in schema.maps)]
    newest = f'max("_changed") OVER (PARTITION BY {", ".join(entry)})'
    cleared = 'max(CASE WHEN "_field" IS NULL AND "_kind" = \'tombstone\' THEN "_changed" END)'
    over = f"OVER (PARTITION BY {', '.join(keys)})"
    rows = f'SELECT *, {newest} AS "_top", {cleared} {over} AS "_cleared" FROM {relation}'
    shadowed = '"_field" IS NOT NULL AND "_changed" < coalesce("_cleared", 0)'
    return f'SELECT * FROM ({rows}) AS "_all" WHERE "_changed" = "_top" AND NOT ({shadowed})'


def _per_key(schema: OperatorSchema, rows: str, now: int | str | None, dialect: Dialect) -> str:
    keys = ", ".join(key_columns(schema))
    own = f'FILTER (WHERE "_field" IS NULL AND {_IS_VALUE})'
    columns = []
    for f in schema.fields:
        if f.process_kind.is_stored_by_entry:
            columns.append(f"{_entries(f, now, dialect)} AS {quote(f.name)}")
        else:
            columns += [f"any_value({quote(name)}) {own} AS {quote(name)}" for name, _ in f.accumulators]
    columns.append(f'bool_or("_field" IS NULL AND {_IS_VALUE}) AS "_live"')
    columns.append('max("_changed") AS "_changed"')
    return f'SELECT {keys}, {", ".join(columns)} FROM ({rows}) AS "_rows" GROUP BY {keys}'


def _entries(field: StoredField, now: int | str | None, dialect: Dialect) -> str:
    """Returns the live entries of a key as an array of structs, in order of their keys."""
    pair = dialect.struct([("key", quote(f"{field.name}__key")), ("value", quote(field.name))])
    live = f"{_IS_VALUE} AND {_is_entry(field)}{_unless(expired_sql(_at(field), field, now))}"
    return dialect.or_empty(f"array_sort(array_agg({pair}) FILTER (WHERE {live}))")


def _is_kept(field: StoredField, now: int | str | None, dialect: Dialect) -> str:
    """Returns the condition that a key has anything in a field that a compaction must keep."""
    return field.process_kind.is_present(field, dialect, now if _sweeps(field) else None)


def _swept(field: StoredField, now: int | str | None, dialect: Dialect) -> dict[str, str]:
    """Returns columns of a field without expired values."""
    return {} if _expired_if_swept(_at(field), field, now) is None else field.process_kind.swept(field, dialect, now)


def _expired_if_swept(at: str, field: StoredField, now: int | str | None) -> str | None:
    return expired_sql(at, field, now) if _sweeps(field) else None


def _sweeps(field: StoredField) -> bool:
    return field.ttl is not None and field.ttl.clean_up_in_background


def _is_entry(field: StoredField) -> str:
    return f"\"_field\" = '{field.name}'"


def _at(field: StoredField) -> str:
    return quote(f"{field.name}__at")


def _unless(condition: str | None) -> str:
    return "" if condition is None else f" AND NOT ({condition})"
