"""The checkpoints that an overview is about: of one timeline with its ancestors, or of all timelines."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidemark.answers.pipeline_verdict import ScopeFacts
from tidemark.coordinator.records.timeline_tree import Branch
from tidemark.errors import NotFoundError, UsageError
from tidemark.web.history import HistoryEntry

LIVE, ALL, ONE = "live", "all", "timeline:"
"""How a scope is written: `live`, `all`, or `timeline:` and a name. Names have no colon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Selects checkpoints.

    Attributes:
        facts: the timeline.
        until: per timeline of the line the last id that belongs to it; None on the timeline itself. Empty = the scope
            has all timelines.
    """

    facts: ScopeFacts
    until: Mapping[str, int | None]

    def takes(self, entry: HistoryEntry) -> bool:
        """Whether a checkpoint belongs to it, completed or not."""
        return self.takes_id(entry.slot.timeline, entry.id)

    def takes_id(self, timeline: str, number: int) -> bool:
        """Whether the checkpoint of this id, on this timeline, belongs to it."""
        if not self.until:
            return True
        last = self.until.get(timeline, 0)
        return last is None or number <= last

    def takes_timeline(self, timeline: str) -> bool:
        """Whether a timeline is the one of the scope or one of its ancestors."""
        return not self.until or timeline in self.until


EVERYTHING = Scope(facts=ScopeFacts(timeline=None, is_live=False), until={})
"""All timelines."""


def parse_scope(text: str, branches: Sequence[Branch]) -> Scope:
    """Finds the scope that a text names.

    Args:
        text: `live`, `all`, or `timeline:` and a name.
        branches: all timelines; empty if they cannot be read, and then `live` has all checkpoints.

    Raises:
        NotFoundError: there is no timeline of this name.
        UsageError: the text has another form.
    """
    if text == ALL:
        return EVERYTHING
    by_name = {b.timeline: b for b in branches}
    if text == LIVE:
        chosen = next((b for b in branches if b.is_live), None)
        if chosen is None:
            return EVERYTHING
    elif text.startswith(ONE):
        chosen = by_name.get(text.removeprefix(ONE))
        if chosen is None:
            raise NotFoundError(f"no timeline {text.removeprefix(ONE)!r}", next="choose one of the tree of timelines.")
    else:
        raise UsageError(f"not a scope: {text!r}", next="write live, all, or timeline: and a name.")
    facts = ScopeFacts(timeline=chosen.timeline, is_live=chosen.is_live)
    return Scope(facts=facts, until=_line_of(chosen, by_name))


def _line_of(chosen: Branch, by_name: Mapping[str, Branch]) -> dict[str, int | None]:
    """A timeline and its ancestors, each up to the checkpoint at which the next one began."""
    until: dict[str, int | None] = {chosen.timeline: None}
    at: Branch | None = chosen
    while at is not None and at.genesis is not None and at.genesis.parent_timeline not in until:
        until[at.genesis.parent_timeline] = at.genesis.parent
        at = by_name.get(at.genesis.parent_timeline)
    return until
