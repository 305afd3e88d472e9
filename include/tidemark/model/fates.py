"""What is about to become of a timeline beside the live one: it is promoted, or it ends (adr/0018)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FateRecord:
    """`fates/<timeline>/<n>.json`: put before the closing that it announces, so that a promote and an end meet safely.

    Attributes:
        timeline: the one that it is about.
        number: ascending from 1; nothing follows an end.
        closes: of a promote, the live timeline; empty = the timeline ends, and nobody may promote it any more.
        sequence: of a promote, the place of the live timeline that it is going to take, and no other one.
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
