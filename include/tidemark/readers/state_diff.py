"""What changed between two checkpoints, key by key; keys alone at the cost of the change (Q2, H7).

Candidates are keys whose `_changed` is later than the newest common ancestor, on either side. Where every file of a
side is later than that, a compaction may have dropped tombstones, so keys that only the other side has are candidates
too. A key whose `_changed` is the same on both sides was left alone by every checkpoint between, so its value is the
same. That does not hold where values expire, nor where the stored schema has changed and tables of both are read:
there both states are resolved in full and compared.
"""

from dataclasses import dataclass, replace
from enum import Enum

import pyarrow as pa

from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.readers.checkpoint_reader import read_checkpoint
from tidemark.readers.diff_candidates import Search, Side
from tidemark.readers.diff_rows import compared, counts, first, packed
from tidemark.readers.duckdb_session import Ask, asking
from tidemark.readers.stored_rows import StoredRows
from tidemark.storage.warehouse_path import Root


class Detail(Enum):
    """How much a diff tells, and so how much it reads.

    Members:
        KEYS: changed and deleted keys; reads key columns of what is newer than the ancestor.
        CHANGES: inserted, updated and deleted keys; looks the candidates up in the key columns of the older state, and
            reads all of these columns where the candidates are spread.
        VALUES: the same, with both values of the keys that are shown; reads the row groups that hold them, too.
    """

    KEYS = "keys"
    CHANGES = "changes"
    VALUES = "values"


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff:
    """What changed from one checkpoint to another.

    Attributes:
        rows: key columns, `change`, and with values the structs `before` and `after`; in order of keys, limited.
        counts: keys by change, all of them.
        bytes_read: bytes read of data files; None where the states were resolved in full.
        bytes_total: bytes of the later state's files.
    """

    rows: pa.Table
    counts: dict[str, int]
    bytes_read: int | None
    bytes_total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two checkpoints of one operator, to be compared.

    Attributes:
        warehouse: root of all tables.
        uid: the operator.
        before: one checkpoint.
        after: the other one.
        ancestor: id of their newest common ancestor, which may be one of them; 0 = none is known.
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
        """Whether a row may have to be mapped before it is resolved, or the two sides have other fields."""
        before = self.before.plan.schemas[self.uid]
        return replace(before, patched=self.schema.patched) != self.schema or bool(self.schema.older)

    def diff(self, detail: Detail, limit: int | None = None) -> Diff:
        """Compares.

        Args:
            detail: what to tell.
            limit: at most this many rows, in order of keys; the counts are of all.

        Raises:
            StoreError: a version or a file of a handle is gone.
            StateOverflowError: a key's merged state does not fit; the message names the key.
        """
        with asking() as ask:
            if self.has_evolved or expires(self.schema):
                return _in_full(self, ask, detail, limit)
            return _by_candidates(self, ask, detail, limit)


def expires(schema: OperatorSchema) -> bool:
    """Whether values of a state go without a record that touches their key."""
    return any(f.ttl is not None for f in schema.fields)


def _by_candidates(of: Comparison, ask: Ask, detail: Detail, limit: int | None) -> Diff:
    stored = StoredRows(of.warehouse, of.schema, ask)
    before, after = (Side.of(stored, at, of.uid, of.ancestor) for at in (of.before, of.after))
    search = Search(stored, before, after)
    changes = search.changes(all_hits=detail is Detail.VALUES, then=detail is not Detail.KEYS)
    shown = first(ask, changes, of.schema, limit)
    values = search.values(shown) if detail is Detail.VALUES else None
    return Diff(
        rows=packed(ask, of.schema, shown, values),
        counts=counts(ask, changes),
        bytes_read=stored.read.bytes_read,
        bytes_total=of.after.handles[of.uid].bytes,
    )


def _in_full(of: Comparison, ask: Ask, detail: Detail, limit: int | None) -> Diff:
    before, after = (read_checkpoint(of.warehouse, at, of.uid) for at in (of.before, of.after))
    changes = compared(ask, of.schema, before, after)
    if detail is Detail.KEYS:
        changes = ask("SELECT * REPLACE (if(_change = 'deleted', _change, 'changed') AS _change) FROM _c", _c=changes)
    shown = first(ask, changes, of.schema, limit)
    values = (before, after) if detail is Detail.VALUES else None
    return Diff(
        rows=packed(ask, of.schema, shown, values),
        counts=counts(ask, changes),
        bytes_read=None,
        bytes_total=of.after.handles[of.uid].bytes,
    )
