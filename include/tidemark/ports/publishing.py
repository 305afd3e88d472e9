"""The ports of publications: a target, and the states that are brought to it. Rows are Arrow tables."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.retention.publication_records import Replaceable
from tidemark.model.schema.operator_schema import OperatorSchema

Rows: TypeAlias = Any
"""An Arrow table."""
Columns: TypeAlias = Sequence[tuple[str, str]]
"""(column, SQL type), key columns included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of a publication.

    Attributes:
        number: counts the steps at the target upwards.
        previous: number of the step that it starts from; 0 = none.
        lineage: id of the rebuild that the rows come from, a random text; a rebuild brings its own.
        previous_lineage: the same of the step that it starts from; empty = none.
        checkpoint: id of the checkpoint whose state the target then has.
        timeline: its timeline.
    """

    number: int
    previous: int
    lineage: str
    previous_lineage: str
    checkpoint: int
    timeline: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The changes from one checkpoint to another.

    Attributes:
        upserts: rows of keys that are new or changed, in the columns of the state.
        deletes: key columns of keys that are gone; no key of `upserts` is among them.
        erased: key columns of keys that were erased, whether or not they are in the state again.
    """

    upserts: Rows
    deletes: Rows
    erased: Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The result of a step.

    Attributes:
        version: the target's own name for its rows, such as the version of a table; of the newest step if a
            later one was there already.
        inserted: rows written for keys that are in the state.
        deleted: rows that were deleted or replaced.
        bytes: bytes written, of logs too; 0 = another process had done it.
    """

    version: str
    inserted: int = 0
    deleted: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StatePart:
    """A part of a state that fits into memory.

    Attributes:
        name: letters, digits and `-`; the same for the same rows of a checkpoint, and for no others.
        read: returns its rows, as one or several tables.
    """

    name: str
    read: Callable[[], Iterable[Rows]]


class PublicationTarget(Protocol):
    """The target of a publication. Each step takes effect as a whole, at most once, and only after the one before."""

    def newest_step(self) -> int:
        """Returns the number of the newest step of this publication that the target has; 0 = none.

        Raises:
            StoreError: it cannot be read.
        """

    def apply(self, step: Step, difference: Callable[[], Difference]) -> Published:
        """Brings the target from the previous step to this one. A step that the target has already changes nothing.

        Args:
            step: the step.
            difference: returns the changes since the previous step.

        Raises:
            TargetChangedError: the target does not have the previous step, or others have changed it.
            StoreError: it cannot be read or written.
        """

    def replace(self, step: Step, parts: Sequence[StatePart], replaces: Replaceable) -> Published:
        """Replaces all rows of the target, or creates it. Parts that an earlier try has written are not read again.

        Args:
            step: the step.
            parts: all rows of the state.
            replaces: the rows that may be replaced.

        Raises:
            TargetChangedError: the target has other rows.
            StoreError: it cannot be read or written.
        """

    def drop(self, step: Step) -> Published:
        """Ends the publication at the target and leaves its rows: no earlier step can arrive any more.

        Raises:
            StoreError: it cannot be read or written.
        """

    def rows(self) -> tuple[int, Rows]:
        """Returns the number of the newest step, and all rows, for a comparison.

        Raises:
            StoreError: it cannot be read.
        """


class PublishedStates(Protocol):
    """The states of one operator, as a target gets them."""

    def state_of(self, rows: Rows, schema: OperatorSchema) -> Rows:
        """Returns the state that rows of a target say, in the columns of `tidemark state export`."""

    def difference(self, before: Checkpoint, after: Checkpoint, ancestor: int, erased: Sequence[Any]) -> Difference:
        """Returns the changes between two checkpoints with the same columns.

        Args:
            before: the checkpoint that the target has.
            after: the checkpoint that it then has.
            ancestor: id of their newest common ancestor; 0 = unknown.
            erased: keys that were erased since, one value per key column.

        Raises:
            StoreError: a version or a file of a handle is missing.
            StateOverflowError: a key's merged state does not fit; the message names the key.
        """

    def parts(self, checkpoint: Checkpoint) -> Sequence[StatePart]:
        """Returns all rows of a checkpoint, unread.

        Raises:
            StoreError, StateOverflowError: as in `difference`.
        """
