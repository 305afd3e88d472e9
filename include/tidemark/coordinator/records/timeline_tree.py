"""The tree of timelines: where each began, how far it has read, and how it ended."""

from dataclasses import dataclass

from tidemark.coordinator.records.timelines import Timelines
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.store_objects import Closing, Genesis


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """One timeline.

    Attributes:
        timeline: its name.
        genesis: the genesis that it began with; None for the first timeline.
        newest: the newest checkpoint of its own; None if it has none yet.
        checkpoints: number of its own checkpoints.
        closing: its closing, if it has ended.
        is_live: whether plans are made on it by default.
    """

    timeline: str
    genesis: Genesis | None
    newest: Checkpoint | None
    checkpoints: int
    closing: Closing | None
    is_live: bool

    @property
    def parent(self) -> str | None:
        """The timeline that it branched off from."""
        return None if self.genesis is None else self.genesis.parent_timeline

    @property
    def fate(self) -> str:
        """The current status, in one to three words."""
        if self.closing is not None:
            return self.closing.fate
        if self.is_live:
            return "live"
        return "fork" if self.genesis is not None and self.genesis.why == "fork" else "not live"


def branch(timelines: Timelines, name: str, live: str) -> Branch:
    """Reads one timeline from its two ends: however long it is, that costs a few objects.

    Raises:
        NotFoundError: there is no timeline of that name.
    """
    head = timelines.head(name)
    first = timelines.entry(name, 1)
    genesis = first if isinstance(first, Genesis) else None
    closing = head.entry if isinstance(head.entry, Closing) else None
    last = timelines.entry_at(name, head.sequence - 1) if closing is not None else head.entry
    return Branch(
        timeline=name,
        genesis=genesis,
        newest=last if isinstance(last, Checkpoint) else None,
        checkpoints=head.sequence - (genesis is not None) - (closing is not None),
        closing=closing,
        is_live=name == live,
    )


def branches(timelines: Timelines) -> list[Branch]:
    """Every timeline, in the order in which they began."""
    live = timelines.live()
    found = [branch(timelines, name, live) for name in {keys.FIRST_TIMELINE: None} | dict.fromkeys(timelines.names())]
    return sorted(found, key=lambda b: (b.genesis is not None, b.genesis.at_ms if b.genesis else 0, b.timeline))
