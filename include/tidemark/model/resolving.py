"""The resolving query: stored rows of a handle to one row per live key, as SQL text that needs no code of ours (A14).

It reads a relation that holds the union of the handle's segments, each opened at its version and cut to its range. It
is published with documentation and manifests; `spark(...)` of `model.expressions` is its Spark spelling.
"""

from tidemark.model.expressions import finish, key_columns, merges, quoted
from tidemark.model.schema import OperatorSchema


def merged_sql(schema: OperatorSchema, relation: str, where: str = "") -> str:
    """One row per key with merged accumulators, `_changed` and `_key_group`: what a compaction writes.

    The rows of a fold are operands, and below them at most values that a compaction of the deepest level made; their
    merges do not depend on order, hence no ordering by `_checkpoint` is needed here.

    Args:
        schema: the operator's stored schema.
        relation: name of the relation (a view, a table, or a parenthesised query).
        where: an optional condition over stored columns, pushed below the merge.
    """
    keys = key_columns(schema)
    columns = [f"{sql} AS {quoted(name)}" for f in schema.fields for name, sql in merges(f, schema.keys)]
    columns += ['max("_changed") AS "_changed"', 'min("_key_group") AS "_key_group"']
    condition = ["WHERE", where] if where else []
    return " ".join(["SELECT", ", ".join([*keys, *columns]), "FROM", relation, *condition, "GROUP BY", ", ".join(keys)])


def resolving_sql(schema: OperatorSchema, relation: str, where: str = "") -> str:
    """One row per live key: key columns, finished state fields in declaration order, `_changed`."""
    finished = [f"{finish(f, schema.keys)} AS {quoted(f.name)}" for f in schema.fields]
    columns = ", ".join([*key_columns(schema), *finished, '"_changed"'])
    return " ".join(["SELECT", columns, "FROM (", merged_sql(schema, relation, where), ') AS "_merged"'])


def empty_columns(schema: OperatorSchema) -> tuple[tuple[str, str], ...]:
    """(column, SQL type) of the resolved frame, for a handle without segments."""
    keys = tuple((k.name, k.type.sql) for k in schema.keys)
    return (*keys, *((f.name, f.type.sql) for f in schema.fields), ("_changed", "BIGINT"))


def stored_columns(schema: OperatorSchema) -> tuple[str, ...]:
    """The stored columns that the queries of this module read."""
    held = tuple(name for f in schema.fields for name, _ in f.accumulators)
    return (*(k.name for k in schema.keys), *held, "_changed", "_key_group")


def run_columns(schema: OperatorSchema) -> tuple[tuple[str, str], ...]:
    """Columns of an operator's `runs` and `base` tables, before the partition columns (design section 5)."""
    keys = tuple((k.name, k.type.sql) for k in schema.keys)
    held = tuple((name, t.sql) for f in schema.fields for name, t in f.accumulators)
    return (*keys, *held, ("_kind", "STRING"), ("_changed", "BIGINT"), ("_key_group", "INT"))
