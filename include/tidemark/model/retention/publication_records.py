"""The progress of publications: what one has begun to bring to its target, and what the target then had (adr/0038)."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class PublicationMode(Enum):
    """The way in which a publication brings its target to a checkpoint.

    Members: DIFFERENCE: the changes since the publication before. REBUILD: all rows. DROP: no rows; it ends the
    publication and fences its earlier steps.
    """

    DIFFERENCE = "difference"
    REBUILD = "rebuild"
    DROP = "drop"


class Replaceable(Enum):
    """The rows that a rebuild may replace.

    Members: UNTOUCHED: those of the publication before, if others have not changed them. OWN: rows of a publication
    of this name, changed by others or not. ANY: those of any other table too.
    """

    UNTOUCHED = "untouched"
    OWN = "own"
    ANY = "any"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicationBegun:
    """`publications/<name>/begun/<n>.json`: a step of a publication; it is made again until it is done.

    The newest one pins its checkpoints: `checkpoint`, and `before` until the step is done.

    Attributes:
        name: name of the publication.
        number: ascending from 1.
        step: the number that the target has afterwards; it is above every number that the target had.
        uid: the operator.
        kind: kind of the target, as in `DeltaMirror.kind`.
        options: its options, without secrets; they name the place.
        mode: how the target is brought to the checkpoint.
        replaces: the rows that a rebuild may replace.
        previous: `step` of the publication that it starts from; 0 = none.
        before: id of the checkpoint that the target had; 0 for a rebuild.
        checkpoint: id of the checkpoint that the target then has.
        timeline: timeline of that checkpoint.
        lineage: id of the rebuild that the rows come from.
        previous_lineage: the same of the publication that it starts from; empty = none.
        erasures: number of the newest erasure that the target then reflects, with all before it.
        at_ms: clock of the writer, for people.
    """

    name: str
    number: int
    step: int
    uid: str
    kind: str
    options: Mapping[str, str]
    mode: PublicationMode
    replaces: Replaceable
    previous: int
    before: int
    checkpoint: int
    timeline: str
    lineage: str
    previous_lineage: str
    erasures: int
    at_ms: int
    write_id: str

    @property
    def pins(self) -> frozenset[int]:
        """Ids of the checkpoints that it reads."""
        return frozenset() if self.mode is PublicationMode.DROP else frozenset({self.before, self.checkpoint} - {0})


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicationDone:
    """`publications/<name>/done/<n>.json`: the target has the checkpoint of the step with this number.

    Attributes:
        name: name of the publication.
        number: of the step.
        version: the target's own name for its rows, such as the version of a table.
        inserted: rows written for keys that are in the state.
        deleted: rows that were deleted or replaced.
        bytes: bytes written; 0 if another process had done it.
        at_ms: clock of the writer, for people.
    """

    name: str
    number: int
    version: str
    inserted: int
    deleted: int
    bytes: int
    at_ms: int
    write_id: str
