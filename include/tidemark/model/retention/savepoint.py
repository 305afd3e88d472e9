"""Savepoints: names that pin completed checkpoints, and tombstones of pending deletions.

A savepoint is a series of revisions, each written once; the newest one counts. Nothing is copied: a savepoint costs one
small object, whatever the size of the state.
"""

import re
from dataclasses import dataclass, field, replace
from enum import Enum

from tidemark.errors import NameRefusedError
from tidemark.model.checkpoint.codec import ADDED
from tidemark.model.core.names import checked_name

_LIKE_AN_ID = re.compile(r"(chk-)?\d+", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SavepointRecord:
    """`savepoints/<name>/<revision>.json`: one revision of a savepoint; the newest one counts.

    Attributes:
        name: assigned once; never reused, even after the savepoint is disposed.
        revision: ascending from 1.
        checkpoint: id of the completed checkpoint that it pins; the same in every revision.
        timeline: timeline of that checkpoint.
        owner: the person who created it.
        note: its purpose.
        expires_at_ms: from then on a sweep may dispose of it; None = never. It pins until it is disposed.
        created_at_ms: clock of the writer of revision 1.
        changed_at_ms: clock of the writer of this revision.
        origin: the call that created it, so that a repetition of the call recognizes its own work.
        drained: the pipeline was stopped for good with it; continuing from it must be forced.
        disposed: this is the final revision: it pins nothing any more. Only a claim can be undone.
        claimed_by: of a final revision, the timeline that took over the pin (CLAIM); None if none did. A timeline that
            ends before it was live returns the pin with one more revision.
        write_id: id of the writer.
    """

    name: str
    revision: int
    checkpoint: int
    timeline: str
    owner: str
    note: str
    expires_at_ms: int | None
    created_at_ms: int
    changed_at_ms: int
    origin: str
    drained: bool
    disposed: bool
    write_id: str
    claimed_by: str | None = field(default=None, metadata=ADDED)

    @property
    def checkpoint_name(self) -> str:
        """`chk-17`."""
        return f"chk-{self.checkpoint}"

    def is_expired(self, now_ms: int) -> bool:
        """Whether it has expired; it still pins until it is disposed."""
        return self.expires_at_ms is not None and self.expires_at_ms <= now_ms

    def revise(self, change: "SavepointChange", *, now_ms: int, write_id: str) -> "SavepointRecord":
        """Returns the next revision, with another note or expiry."""
        return replace(
            self,
            revision=self.revision + 1,
            note=self.note if change.note is None else change.note,
            expires_at_ms=change.expires_at_ms if change.moves_expiry else self.expires_at_ms,
            changed_at_ms=now_ms,
            write_id=write_id,
        )

    def end(self, *, now_ms: int, write_id: str, claimed_by: str | None = None) -> "SavepointRecord":
        """Returns the final revision: disposed, or claimed by a timeline."""
        return replace(
            self,
            revision=self.revision + 1,
            disposed=True,
            claimed_by=claimed_by,
            changed_at_ms=now_ms,
            write_id=write_id,
        )

    def given_back(self, *, now_ms: int, write_id: str) -> "SavepointRecord":
        """Returns the next revision, which pins again: the timeline that claimed it ended before it was live."""
        return replace(
            self,
            revision=self.revision + 1,
            disposed=False,
            claimed_by=None,
            changed_at_ms=now_ms,
            write_id=write_id,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SavepointRequest:
    """The request for a savepoint: a name for a completed checkpoint.

    Attributes:
        name: a valid name that does not read as a checkpoint id. owner, note, expires_at_ms, drained, origin: as in
            `SavepointRecord`.
        checkpoint: its id, on any timeline; None = the newest one of `timeline`.
        timeline: the timeline of the newest one; None = the live one.
    """

    name: str
    owner: str
    origin: str
    checkpoint: int | None = None
    timeline: str | None = None
    note: str = ""
    expires_at_ms: int | None = None
    drained: bool = False

    def __post_init__(self) -> None:
        checked_savepoint(self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class SavepointChange:
    """Another note, another expiry, or both; the checkpoint and the name never change.

    Attributes:
        note: None = unchanged.
        expires_at_ms: None = never; used if `moves_expiry`.
        moves_expiry: whether the expiry changes.
    """

    note: str | None = None
    expires_at_ms: int | None = None
    moves_expiry: bool = False


class TombstoneKind(Enum):
    """The kinds of objects with tombstones."""

    CHECKPOINT = "checkpoint"
    SAVEPOINT = "savepoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class TombstoneRecord:
    """`tombstones/<kind>s/<name>/<n>.json`: announces a deletion, or withdraws it; the newest counts.

    A deleter writes it, then looks for pins; a pinner writes the pin, then looks for tombstones. At least one of them
    sees the other and withdraws, whatever their clocks say.

    Attributes:
        kind: kind of the object.
        name: `chk-17`, or the name of a savepoint.
        number: ascending from 1.
        withdrawn: a pin was found, so nothing is deleted.
        confirmed: no pin was found: a checkpoint is released, and its files may be deleted. It competes with
            `withdrawn` for the number after the tombstone.
        why: for people.
        at_ms: clock of the writer, for people.
        write_id: id of the writer.
        place: of a checkpoint, the key of its manifest, which readers then skip without reading it.
        given_up: of a checkpoint, its manifest is damaged and a person gave it up: it is never read again.
    """

    kind: TombstoneKind
    name: str
    number: int
    withdrawn: bool
    why: str
    at_ms: int
    write_id: str
    confirmed: bool = field(default=False, metadata=ADDED)
    place: str = field(default="", metadata=ADDED)
    given_up: bool = field(default=False, metadata=ADDED)


def checked_savepoint(name: str) -> str:
    """Returns `name` if it is valid for a savepoint.

    Raises:
        NameRefusedError: it is not a valid name (`model.core.names`), or it reads as a checkpoint id.
    """
    if _LIKE_AN_ID.fullmatch(name):
        raise NameRefusedError(
            f"savepoint name refused: {name!r} reads as a checkpoint id",
            next="use a name that is not an id, as in before-upgrade.",
        )
    return checked_name("savepoint", name)
