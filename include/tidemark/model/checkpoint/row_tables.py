"""Tables of rows that are only added: sinks and dead letters, as a compaction sees them (adr/0041).

A compaction merges the rows of many checkpoints into one file of a second table, so there each row names its
checkpoint. Everywhere else a file holds rows of one checkpoint, and its partition names that.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tidemark.model.checkpoint.dead_letters import DEAD_LETTER_COLUMNS, LATER_COLUMNS
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.plan import dead_letters_path
from tidemark.model.checkpoint.segments import (
    BASE,
    LiveFile,
    Segment,
    StateHandle,
    current_rows_path,
    is_base,
    is_first_form,
    owner_of,
)
from tidemark.model.checkpoint.sinks import PATH, ROW_ID, Columns, SinkTable
from tidemark.model.checkpoint.store_objects import Genesis

ROW_CHECKPOINT = "_row_checkpoint"
"""Column of compacted files: the checkpoint that wrote the row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowTable:
    """One sink, or the dead letters of one operator, as of a checkpoint.

    Attributes:
        uid: the operator that writes to it.
        path: the table that the checkpoint's timeline appends to, relative to the warehouse.
        columns: its columns.
        handle: the rows.
        older: the columns that are still read, per path of a table that was begun with other columns.
        later: the columns that tables of 0.1 lack.
    """

    uid: str
    path: str
    columns: Columns
    handle: StateHandle
    older: Mapping[str, Columns] = field(default_factory=dict)
    later: frozenset[str] = LATER_COLUMNS

    @property
    def owner(self) -> str:
        """Names its compactions: `<sink>~sinks`, `<sink>~outbox` or `<uid>~dead_letters`; no uid contains `~`."""
        return owner_of(self.path)

    @property
    def base(self) -> str:
        """The table that its compactions commit to."""
        return base_of(self.path)

    @property
    def stored(self) -> Columns:
        """The columns of `base`."""
        return (*self.columns, (ROW_CHECKPOINT, "BIGINT"))

    def sources_of(self, path: str) -> frozenset[str]:
        """Returns the columns to read from one of its tables; rows have null in the others."""
        there = frozenset(name for name, _ in self.older.get(path, self.columns))
        return (there & frozenset(name for name, _ in self.columns)) - (self.later if is_first_form(path) else set())


def base_of(path: str) -> str:
    """Returns the table that compactions of a sink's, or a dead-letter, table commit to."""
    return f"{path}~{BASE}"


def may_hold(segment: Segment, file: LiveFile, checkpoint: int) -> bool:
    """Whether a file may hold rows of a checkpoint, by its partition and its statistics."""
    if not is_base(segment.path):
        return file.checkpoint == checkpoint
    bounds = json.loads(file.file.stats)
    least = bounds.get("minValues", {}).get(ROW_CHECKPOINT, 0)
    greatest = bounds.get("maxValues", {}).get(ROW_CHECKPOINT, file.checkpoint)
    return bool(least <= checkpoint <= greatest)


_KINDS = {"": "state", "dead_letters": "dead letters", "sinks": "sink", "outbox": "outbox"}


def describe_owner(owner: str) -> tuple[str, str]:
    """Returns the name of a compaction's operator or sink, and the kind of the merged table."""
    name, _, kind = owner.partition("~")
    return name, _KINDS[kind]


def row_tables(found: Checkpoint) -> Iterator[RowTable]:
    """Returns the dead letters and the sinks of a checkpoint that have rows."""
    plan = found.plan
    for ack in found.sealed.acks:
        if ack.dead_letters:
            path = dead_letters_path(plan.pipeline, ack.uid, plan.slot.timeline)
            yield letter_rows(ack.dead_letters, uid=ack.uid, path=path)
    yield from (sink_rows(uid, table) for uid, table in found.sinks.items() if table.handle)


def letter_rows(handle: StateHandle, *, uid: str = "", path: str = "") -> RowTable:
    """Returns dead letters as a table of rows; one that is only read needs no path."""
    return RowTable(uid=uid, path=path, columns=DEAD_LETTER_COLUMNS, handle=handle)


def sink_rows(uid: str, table: SinkTable) -> RowTable:
    """Returns a sink as a table of rows. If it has the form of 0.1, compactions write to the table of the next plan."""
    path = table.path
    if is_first_form(path):
        folder, _, name = path.rpartition("/")
        path = current_rows_path(f"{folder}/{name.partition('~')[0]}")
    older = {path: (*columns, *ROW_ID) for path, columns in table.older.items()}
    return RowTable(uid=uid, path=path, columns=table.stored, handle=table.handle, older=older, later=frozenset({PATH}))


def compacted_handles(entry: Checkpoint | Genesis) -> dict[str, StateHandle]:
    """Returns what a compaction of the entry may have read, by owner: state by uid, and tables of rows."""
    letters = entry.dead_letters if isinstance(entry, Genesis) else {a.uid: a.dead_letters for a in entry.sealed.acks}
    found = dict(entry.handles) | {f"{uid}~dead_letters": handle for uid, handle in letters.items() if handle}
    return found | {owner_of(table.path): table.handle for table in entry.sinks.values() if table.handle}
