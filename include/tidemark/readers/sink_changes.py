"""Compares the rows that two timelines have emitted to a sink since their common ancestor, by the ids of the rows.

The row of a closed window has the same id on both timelines, so a window that has another value is one changed row.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidemark.model.checkpoint.sinks import ROW_ID, SinkTable
from tidemark.model.kinds.base.sql import quote
from tidemark.readers.duckdb_session import open_query_runner
from tidemark.readers.sink_reader import rows_since
from tidemark.storage.local_store import Root

_IDS = [name for name, _ in ROW_ID]
EXAMPLES = 20
"""Rows that a comparison returns by default."""
_CLOSE = 1e-9
"""As in `field_changes`: regrouping changes the last bits of sums and means of floating-point numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkChange:
    """The difference in the rows of one output, counted by id.

    Attributes:
        uid: the output.
        sink: the name of its sink.
        inserted: rows only on the later side.
        deleted: rows only on the earlier side.
        changed: rows with another value in a column of both sides.
        equal: rows without.
        examples: the first rows that are not equal, as `change`, `before`, `after`; columns of both sides only.
        differing: the columns that differ, for each of the examples; none of them for a row of one side.
    """

    uid: str
    sink: str
    inserted: int
    deleted: int
    changed: int
    equal: int
    examples: tuple[dict[str, Any], ...] = ()
    differing: tuple[tuple[str, ...], ...] = ()


def compare_sinks(
    warehouse: Root, uid: str, before: SinkTable, after: SinkTable, since: int, examples: int = EXAMPLES
) -> SinkChange:
    """Compares the rows of a sink on two timelines.

    Args:
        warehouse: root of all tables.
        uid: the output.
        before: the sink on the earlier side.
        after: the sink on the later side.
        since: id of the common ancestor: rows up to it are the same.
        examples: the most rows to return.

    Raises:
        StoreError: a version or a file of a handle is missing.
    """
    types = dict(before.columns)
    shared = [(name, sql) for name, sql in after.columns if types.get(name) == sql]
    was, is_now = (rows_since(warehouse, table, since) for table in (before, after))
    return change_of_rows(uid, after.name, shared, was, is_now, examples)


def change_of_rows(
    uid: str,
    sink: str,
    shared: Sequence[tuple[str, str]],
    before: pa.Table,
    after: pa.Table,
    examples: int = EXAMPLES,
) -> SinkChange:
    """Compares rows, which have the columns of ids, by some of their other columns.

    Args:
        uid: the output.
        sink: the name of its sink.
        shared: name and SQL type of the columns to compare.
        before: the rows of the earlier side, each id once.
        after: those of the later side.
        examples: the most rows to return.
    """
    with open_query_runner() as ask:
        found = ask(_changes(shared), b=before, a=after)
        counts = Counter({r["change"]: r["n"] for r in ask(_COUNTED, found=found).to_pylist()})
        first = ask(f"{_FIRST} LIMIT {examples}", found=found).to_pylist(maps_as_pydicts="strict")
    differing = [[name for name, differs in (row.pop("differing") or {}).items() if differs] for row in first]
    return SinkChange(
        uid=uid,
        sink=sink,
        inserted=counts["inserted"],
        deleted=counts["deleted"],
        changed=counts["changed"],
        equal=counts["equal"],
        examples=tuple(first),
        differing=tuple(map(tuple, differing)),
    )


_COUNTED = "SELECT change, count(*) AS n FROM found GROUP BY change"
_FIRST = f"""
    SELECT change, before, after, differing FROM found WHERE change <> 'equal' ORDER BY {", ".join(_IDS)}
"""


def _changes(shared: Sequence[tuple[str, str]]) -> str:
    """Returns the query for one row per id: how it differs, and the columns of both sides."""
    ids = ", ".join(_IDS)
    differs = " OR ".join(_differs(name, sql) for name, sql in shared) or "false"
    sides = [_side(side, [name for name, _ in shared]) for side in ("b", "a")]
    flags = ", ".join(f"'{name}': {_differs(name, sql)}" for name, sql in shared)
    differing = f"CASE WHEN b._uid IS NOT NULL AND a._uid IS NOT NULL THEN {{{flags}}} END" if shared else "NULL"
    change = f"CASE WHEN b._uid IS NULL THEN 'inserted' WHEN a._uid IS NULL THEN 'deleted' WHEN {differs}"
    return (
        f"SELECT {', '.join(f'coalesce(b.{n}, a.{n}) AS {n}' for n in _IDS)},"
        f" {change} THEN 'changed' ELSE 'equal' END AS change, {sides[0]} AS before, {sides[1]} AS after,"
        f" {differing} AS differing"
        f" FROM b FULL JOIN a USING ({ids})"
    )


def _side(side: str, names: Sequence[str]) -> str:
    """Returns a side's row as a struct, null if there is none."""
    fields = ", ".join(f"'{name}': {side}.{quote(name)}" for name in names)
    return f"CASE WHEN {side}._uid IS NOT NULL THEN {{{fields}}} END" if names else "NULL"


def _differs(name: str, sql: str) -> str:
    before, after = f"b.{quote(name)}", f"a.{quote(name)}"
    differs = f"{before} IS DISTINCT FROM {after}"
    if sql not in ("DOUBLE", "FLOAT"):
        return f"({differs})"
    near = f"abs({before} - {after}) <= {_CLOSE} * greatest(abs({before}), abs({after}))"
    return f"({differs} AND NOT coalesce({near}, false))"
