"""The changes between two checkpoints, key by key; finding the keys costs no more than the change.

By default keys are upserted or deleted, as in an upsert changelog of Flink (`ChangelogMode.upsert`), which needs no row
of the earlier state. Flink's full changelog (`ChangelogMode.all`), with inserted and updated keys, needs its keys: only
they prove that a key was there (ADR 0070).

Candidates are keys whose `_changed` is later than the newest common ancestor, on either side. If every file of a side
is later than that, a compaction may have dropped tombstones, so keys that only the other side has are candidates too. A
key with the same `_changed` on both sides was not touched by any checkpoint in between, so its value is the same. This
does not hold if values expire, or if the stored schema has changed and tables of both schemas are read: then both
states are resolved in full and compared.
"""

from dataclasses import dataclass, replace
from enum import Enum

import pyarrow as pa

from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.kinds.base.sql import key_columns, quote
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.readers.checkpoint_reader import read_checkpoint
from tidemark.readers.diff_candidates import Search, Side
from tidemark.readers.duckdb_session import QueryRunner, open_query_runner
from tidemark.readers.stored_rows import StoredRows
from tidemark.storage.local_store import Root


# Rows of a diff: two resolved states compared in full, and changed keys in their displayed form.
def compare_states(ask: QueryRunner, schema: OperatorSchema, before: pa.Table, after: pa.Table) -> pa.Table:
    """Returns keys that differ between two resolved states: key columns and `_change`.

    Floating-point sums and means may differ in their last bits after a compaction, so only their nulls are compared. If
    the schema has changed in between, fields of one side are ignored.
    """
    keys = ", ".join(key_columns(schema))
    same = [
        f"_b.{f} IS NOT DISTINCT FROM _a.{f}" if exact else f"(_b.{f} IS NULL) = (_a.{f} IS NULL)"
        for f, exact in ((quote(f.name), f.exact) for f in schema.fields if f.name in before.column_names)
    ]
    alike = " AND ".join(["_b._changed = _a._changed", *same])
    change = "CASE WHEN _b._changed IS NULL THEN 'inserted' WHEN _a._changed IS NULL THEN 'deleted' ELSE 'updated' END"
    return ask(
        f"SELECT {keys}, {change} AS _change FROM _b FULL JOIN _a USING ({keys}) WHERE NOT coalesce({alike}, false)",
        _b=before,
        _a=after,
    )


def first(ask: QueryRunner, changes: pa.Table, schema: OperatorSchema, limit: int | None) -> pa.Table:
    """Returns the first rows in order of keys."""
    bound = "" if limit is None else f" LIMIT {limit}"
    return ask(f"FROM changes ORDER BY {', '.join(key_columns(schema))}{bound}", changes=changes)


def to_rows(
    ask: QueryRunner, schema: OperatorSchema, shown: pa.Table, values: tuple[pa.Table, pa.Table] | None
) -> pa.Table:
    """Returns the columns `key` and `change`; with both resolved states also `before` and `after`, in order of keys.

    Args:
        ask: runs queries over Arrow tables.
        schema: the stored schema.
        shown: key columns and `_change`.
        values: resolved rows before and after, at least those of the shown keys.
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
    return ", ".join(f"{quote(name)} := {side}.{quote(name)}" for name in rows.column_names if name not in keys)


def counts(ask: QueryRunner, changes: pa.Table) -> dict[str, int]:
    """Returns the number of keys by change."""
    counted = ask("SELECT _change, count(*) AS n FROM _c GROUP BY _change", _c=changes).to_pylist()
    return {row["_change"]: row["n"] for row in counted}


class Detail(Enum):
    """The detail of a diff, which decides how much it reads.

    Members: UPSERTS: upserted and deleted keys; reads key columns of rows newer than the ancestor. A deleted key does
    not live on the later side; it may not have lived on the earlier one either. CHANGES: inserted, updated and deleted
    keys; looks the candidates up in the key columns of the older state, and reads all of these columns if the
    candidates are scattered. VALUES: the same, with both values of the shown keys; also reads the row groups that
    contain them. KEYS: UPSERTS with the word of 0.1, `changed` for `upserted`; deprecated.
    """

    UPSERTS = "upserts"
    CHANGES = "changes"
    VALUES = "values"
    KEYS = "keys"

    @property
    def has_inserts(self) -> bool:
        """Whether it distinguishes inserted from updated keys."""
        return self in (Detail.CHANGES, Detail.VALUES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff:
    """The changes from one checkpoint to another.

    Attributes:
        rows: the struct `key`, `change`, and with values the structs `before` and `after`; in order of keys, limited.
        counts: keys by change, all of them.
        bytes_read: bytes read from data files; None if the states were resolved in full.
        bytes_total: bytes of the later state's files.
    """

    rows: pa.Table
    counts: dict[str, int]
    bytes_read: int | None
    bytes_total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two checkpoints of one operator to compare.

    Attributes:
        warehouse: root of all tables.
        uid: the operator.
        before: the earlier checkpoint.
        after: the later one.
        ancestor: id of their newest common ancestor, which may be one of them; 0 = unknown.
    """

    warehouse: Root
    uid: str
    before: Checkpoint
    after: Checkpoint
    ancestor: int

    @property
    def schema(self) -> OperatorSchema:
        """The stored schema of the later side."""
        return self.after.plan.schemas[self.uid]

    @property
    def has_evolved(self) -> bool:
        """Whether rows may have to be mapped before they are resolved, or the two sides have different fields."""
        before = self.before.plan.schemas[self.uid]
        return replace(before, patched=self.schema.patched) != self.schema or bool(self.schema.older)

    @property
    def resolves_both(self) -> bool:
        """Whether both states are resolved in full: values expire, or the declaration has changed."""
        return self.has_evolved or expires(self.schema)

    def diff(self, detail: Detail, limit: int | None = None) -> Diff:
        """Compares the two checkpoints.

        Args:
            detail: the level of detail.
            limit: maximum number of rows, in order of keys; the counts cover all.

        Raises:
            StoreError: a version or a file of a handle is missing.
            StateOverflowError: a key's merged state does not fit; the message names the key.
        """
        with open_query_runner() as ask:
            if self.resolves_both:
                return _in_full(self, ask, detail, limit)
            return _by_candidates(self, ask, detail, limit)


def expires(schema: OperatorSchema) -> bool:
    """Whether values of a state vanish without a record that touches their key: they expire, or windows close."""
    return schema.window is not None or any(f.ttl is not None for f in schema.fields)


def _by_candidates(of: Comparison, ask: QueryRunner, detail: Detail, limit: int | None) -> Diff:
    stored = StoredRows(of.warehouse, of.schema, ask)
    before, after = (Side.of(stored, at, of.uid, of.ancestor) for at in (of.before, of.after))
    search = Search(stored, before, after)
    changes = _in_words(ask, search.changes(all_hits=detail is Detail.VALUES, inserts=detail.has_inserts), detail)
    shown = first(ask, changes, of.schema, limit)
    values = search.values(shown) if detail is Detail.VALUES else None
    return Diff(
        rows=to_rows(ask, of.schema, shown, values),
        counts=counts(ask, changes),
        bytes_read=stored.read.bytes_read,
        bytes_total=of.after.handles[of.uid].bytes,
    )


def _in_full(of: Comparison, ask: QueryRunner, detail: Detail, limit: int | None) -> Diff:
    before, after = (read_checkpoint(of.warehouse, at, of.uid) for at in (of.before, of.after))
    changes = _in_words(ask, compare_states(ask, of.schema, before, after), detail)
    shown = first(ask, changes, of.schema, limit)
    values = (before, after) if detail is Detail.VALUES else None
    return Diff(
        rows=to_rows(ask, of.schema, shown, values),
        counts=counts(ask, changes),
        bytes_read=None,
        bytes_total=of.after.handles[of.uid].bytes,
    )


def _in_words(ask: QueryRunner, changes: pa.Table, detail: Detail) -> pa.Table:
    """Returns changes with the words of a detail."""
    if detail.has_inserts:
        return changes
    word = "changed" if detail is Detail.KEYS else "upserted"
    return ask(f"SELECT * REPLACE (if(_change = 'deleted', _change, '{word}') AS _change) FROM _c", _c=changes)
