"""What is about to become of a timeline that is not live: it is made live, or it ends (adr/0018, adr/0024)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FateRecord:
    """`fates/<timeline>/<n>.json`: put ahead of the closing that it announces: a promote, a restore and an end meet.

    Attributes:
        timeline: the one that it is about.
        number: ascending from 1; nothing follows an end.
        closes: of a promote or a restore, the live timeline; empty = the timeline ends, and can never become live.
        sequence: of a promote or a restore, the place of the live timeline that it is going to take, and no other one.
        at_ms: clock of the writer, for people.
        write_id: of the writer.
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
