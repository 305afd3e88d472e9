"""Announces the future of a timeline that is not live: it becomes live, or it ends (adr/0018, adr/0024)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PromotionClaim:
    """`fates/<timeline>/<n>.json`: precedes the closing that it announces, so a promote, a restore and an end collide.

    Attributes:
        timeline: the timeline in question.
        number: ascending from 1; nothing follows an end.
        closes: of a promote or a restore, the live timeline; empty = the timeline ends and can never become live.
        sequence: of a promote or a restore, the only place of the live timeline that it may take.
        at_ms: clock of the writer, for people.
        write_id: id of the writer.
    """

    timeline: str
    number: int
    closes: str
    sequence: int
    at_ms: int
    write_id: str

    @property
    def is_end(self) -> bool:
        """Whether the timeline ends."""
        return not self.closes
