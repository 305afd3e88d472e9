"""Publications: the checkpoint that each target has, and how far it is behind."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicationStatus:
    """A publication.

    Attributes:
        publication: its name.
        uid: the operator.
        kind: kind of the target.
        place: where the state goes.
        state: `new` = nothing was published yet; `begun` = a step is not done; `removed` = it is no longer declared,
            and still pins its checkpoint; `dropped` = it was ended.
        checkpoint: name of the checkpoint that the target has.
        version: the target's own name for its rows.
        behind: number of completed checkpoints of the live timeline that the target does not have yet; at most 1,000,
            and 0 if it was dropped.
        published_at: when the last step was done.
    """

    publication: str
    uid: str
    kind: str
    place: str
    state: Literal["new", "current", "behind", "begun", "removed", "dropped"]
    checkpoint: str | None
    version: str | None
    behind: int
    published_at: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedFacts:
    """A step of a publication.

    Attributes:
        publication: its name.
        uid: the operator.
        place: where the state went.
        mode: `difference`, `rebuild` or `drop`.
        checkpoint: name of the checkpoint that the target has.
        timeline: its timeline.
        version: the target's own name for its rows.
        inserted: rows written for keys that are in the state.
        deleted: rows that were deleted or replaced.
        bytes: bytes written.
        published_at: when it was done.
    """

    publication: str
    uid: str
    place: str
    mode: str
    checkpoint: str
    timeline: str
    version: str
    inserted: int
    deleted: int
    bytes: int
    published_at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicationDetails:
    """A publication with its last steps.

    Attributes:
        status: the publication.
        steps: its last steps, newest first: `version` is the one to read as of `checkpoint`.
        views: statements that make a view of the target, by engine; none if it is no Delta table, or has no rows yet.
    """

    status: PublicationStatus
    steps: Sequence[PublishedFacts]
    views: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicationCheck:
    """A comparison of a target with the state of its checkpoint.

    Attributes:
        publication: its name.
        checkpoint: name of the checkpoint that the target has.
        rows: keys in the state.
        missing: keys that only the state has.
        extra: keys that only the target has.
        different: keys with other values. Floating-point sums and means may differ in their last bits.
        equal: whether there are none of these.
    """

    publication: str
    checkpoint: str
    rows: int
    missing: int
    extra: int
    different: int
    equal: bool
