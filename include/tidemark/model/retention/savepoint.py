"""Savepoints: names that pin completed checkpoints, and the tombstones of what is about to go (design section 6, G1).

A savepoint is a series of revisions, each written once; the newest one counts. Nothing is copied: it costs one small
object, whatever the size of the state (Q1).
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
        name: given once, used for this savepoint only, even when it is disposed.
        revision: ascending from 1.
        checkpoint: id of the completed checkpoint that it pins; the same in every revision.
        timeline: of that checkpoint.
        owner: who made it.
        note: what it is for.
        expires_at_ms: from when on it may be disposed without asking; None = never (G16). It pins until it is.
        created_at_ms: clock of the writer of revision 1.
        changed_at_ms: clock of the writer of this revision.
        origin: which call made it, so that a repetition of that call knows its own work.
        drained: the pipeline was stopped for good with it; going on from it wants to be forced (G3).
        disposed: the final revision: it pins nothing any more (G13). Only a claim can be taken back.
        claimed_by: of a final revision, the timeline that took the pin over (G10, CLAIM); None where none did. A
            timeline that ends before it was live gives the pin back, by one revision more.
        write_id: of the writer.
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
        """Whether its time is over; it pins all the same until somebody disposes it."""
        return self.expires_at_ms is not None and self.expires_at_ms <= now_ms

    def revised(self, change: "SavepointChange", *, now_ms: int, write_id: str) -> "SavepointRecord":
        """The next revision, with another note or expiry."""
        return replace(
            self,
            revision=self.revision + 1,
            note=self.note if change.note is None else change.note,
            expires_at_ms=change.expires_at_ms if change.moves_expiry else self.expires_at_ms,
            changed_at_ms=now_ms,
            write_id=write_id,
        )

    def ended(self, *, now_ms: int, write_id: str, claimed_by: str | None = None) -> "SavepointRecord":
        """The final revision: disposed, or claimed by a timeline."""
        return replace(
            self,
            revision=self.revision + 1,
            disposed=True,
            claimed_by=claimed_by,
            changed_at_ms=now_ms,
            write_id=write_id,
        )

    def given_back(self, *, now_ms: int, write_id: str) -> "SavepointRecord":
        """The next revision, which pins again: the timeline that claimed it ended before it was live."""
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
    """What somebody asks for: a name for a completed checkpoint.

    Attributes:
        name: on the allow-list, and nothing that reads as a checkpoint id.
        owner, note, expires_at_ms, drained, origin: as in `SavepointRecord`.
        checkpoint: its id, on whichever timeline; None = the newest one of `timeline`.
        timeline: where the newest one is looked for; None = the live one.
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
        note: None = leave it.
        expires_at_ms: None = never; counts where `moves_expiry`.
        moves_expiry: whether the expiry changes at all.
    """

    note: str | None = None
    expires_at_ms: int | None = None
    moves_expiry: bool = False


class TombstoneKind(Enum):
    """What a tombstone can stand for."""

    CHECKPOINT = "checkpoint"
    SAVEPOINT = "savepoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class TombstoneRecord:
    """`tombstones/<kind>s/<name>/<n>.json`: something is about to be deleted, or is not after all; the newest counts.

    Who deletes writes it, then looks for pins; who pins writes the pin, then looks for it. At least one of them sees
    the other and withdraws, whatever their clocks say.

    Attributes:
        kind: what it stands for.
        name: `chk-17`, or the name of a savepoint.
        number: ascending from 1.
        withdrawn: it stands for nothing: a pin was found.
        confirmed: no pin was found: of a checkpoint, it is released, and its files may go. Competes with `withdrawn`
            for the number behind the tombstone.
        why: for people.
        at_ms: clock of the writer, for people.
        write_id: of the writer.
        place: of a checkpoint, the key of its manifest, so that it is left out without being read.
        given_up: of a checkpoint, its manifest is damaged, and somebody gave it up: nobody reads it any more.
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
    """Returns `name` if a savepoint may be called so.

    Raises:
        NameRefusedError: off the allow-list (`model.names`), or it reads as a checkpoint id.
    """
    if _LIKE_AN_ID.fullmatch(name):
        raise NameRefusedError(
            f"savepoint name refused: {name!r} reads as a checkpoint id",
            next="take a name with a letter that is no id, as in before-upgrade.",
        )
    return checked_name("savepoint", name)
