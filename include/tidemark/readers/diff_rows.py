"""Rows of a diff: two resolved states compared in full, and changed keys in the form that is shown."""

import pyarrow as pa

from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.readers.duckdb_session import Ask
from tidemark.sql.fold_columns import key_columns, quoted


def compared(ask: Ask, schema: OperatorSchema, before: pa.Table, after: pa.Table) -> pa.Table:
    """Keys that differ between two resolved states: key columns and `_change`.

    Floating-point sums and means may differ in their last bits after a compaction: of them only null is compared.
    Where the schema has changed in between, fields of one side only say nothing.
    """
    keys = ", ".join(key_columns(schema))
    same = [
        f"_b.{f} IS NOT DISTINCT FROM _a.{f}" if exact else f"(_b.{f} IS NULL) = (_a.{f} IS NULL)"
        for f, exact in ((quoted(f.name), f.exact) for f in schema.fields if f.name in before.column_names)
    ]
    alike = " AND ".join(["_b._changed = _a._changed", *same])
    change = "CASE WHEN _b._changed IS NULL THEN 'inserted' WHEN _a._changed IS NULL THEN 'deleted' ELSE 'updated' END"
    return ask(
        f"SELECT {keys}, {change} AS _change FROM _b FULL JOIN _a USING ({keys}) WHERE NOT coalesce({alike}, false)",
        _b=before,
        _a=after,
    )


def first(ask: Ask, changes: pa.Table, schema: OperatorSchema, limit: int | None) -> pa.Table:
    """The first rows in order of keys."""
    bound = "" if limit is None else f" LIMIT {limit}"
    return ask(f"FROM changes ORDER BY {', '.join(key_columns(schema))}{bound}", changes=changes)


def packed(ask: Ask, schema: OperatorSchema, shown: pa.Table, values: tuple[pa.Table, pa.Table] | None) -> pa.Table:
    """The columns `key` and `change`; with both resolved states also `before` and `after`, in order of keys.

    Args:
        ask: asks queries of Arrow tables.
        schema: the stored schema.
        shown: key columns and `_change`.
        values: resolved rows before and after, at least those of the keys that are shown.
    """
    keys = ", ".join(key_columns(schema))
    key = f"struct_pack({', '.join(f'{k} := _c.{k}' for k in key_columns(schema))}) AS key, _change AS change"
    if values is None:
        return ask(f"SELECT {key} FROM _c ORDER BY {keys}", _c=shown)
    sides = ", ".join(
        f"CASE WHEN {side}._changed IS NOT NULL THEN struct_pack({_fields(schema, rows, side)}) END AS {name}"
        for side, name, rows in (("_b", "before", values[0]), ("_a", "after", values[1]))
    )
    sql = f"SELECT {key}, {sides} FROM _c LEFT JOIN _b USING ({keys}) LEFT JOIN _a USING ({keys}) ORDER BY {keys}"
    return ask(sql, _c=shown, _b=values[0], _a=values[1])


def _fields(schema: OperatorSchema, rows: pa.Table, side: str) -> str:
    keys = {k.name for k in schema.keys}
    return ", ".join(f"{quoted(name)} := {side}.{quoted(name)}" for name in rows.column_names if name not in keys)


def counts(ask: Ask, changes: pa.Table) -> dict[str, int]:
    """Number of keys by change."""
    counted = ask("SELECT _change, count(*) AS n FROM _c GROUP BY _change", _c=changes).to_pylist()
    return {row["_change"]: row["n"] for row in counted}
