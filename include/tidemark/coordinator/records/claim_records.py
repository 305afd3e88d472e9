"""Promotes, restores and ends of one timeline meet here: they take places of different timelines (adr/0018, adr/0024).

A promote or a restore claims the place of the live timeline that it will take, then takes it. An end is put behind the
last claim, once every claimed place is taken by another entry. A place never changes hands, so of a claim and an end
one is certain to see the other, without clocks.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tidemark.coordinator.records.objects import Objects
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.store_objects import Closing
from tidemark.model.retention.promotion_claims import FateRecord
from tidemark.ports import Clock, PutOutcome, WriteIds


@dataclass(frozen=True, slots=True, kw_only=True)
class Fates:
    """Reads and writes the fates of timelines of one pipeline."""

    objects: Objects
    clock: Clock
    write_ids: WriteIds

    def claim(self, timeline: str, closes: str, sequence: int) -> bool:
        """Announces a promote or a restore, which may take that place from now on; False = the timeline has ended."""
        while True:
            found = list(self._all(timeline))
            if found and found[-1].is_end:
                return False
            if any((r.closes, r.sequence) == (closes, sequence) for r in found):
                return True
            if self._put(timeline, len(found) + 1, closes, sequence):
                return True

    def end(self, timeline: str) -> FateRecord | None:
        """Ends a timeline: from now on nobody may promote it. A repeated call finds that it has ended.

        Returns:
            None; or the claim that stands in the way: it was promoted, or may be at any moment.
        """
        while True:
            found = list(self._all(timeline))
            if found and found[-1].is_end:
                return None
            standing = next((r for r in found if self.may_win(r)), None)
            if standing is not None:
                return standing
            if self._put(timeline, len(found) + 1, "", 0):
                return None

    def has_ended(self, timeline: str) -> bool:
        """Whether the end of a timeline was announced: nothing can make it live any more."""
        return any(record.is_end for record in self._all(timeline))

    def standing(self, timeline: str) -> FateRecord | None:
        """The claim that stands in the way of an end; None where there is none."""
        return next((r for r in self._all(timeline) if not r.is_end and self.may_win(r)), None)

    def may_win(self, claim: FateRecord) -> bool:
        """Whether the place of a claim is free, or taken by the promote that it announces."""
        entry = self.objects.published(claim.closes, claim.sequence)
        return entry is None or (isinstance(entry, Closing) and entry.successor == claim.timeline)

    def _all(self, timeline: str) -> Iterator[FateRecord]:
        number = 1
        while (found := self.objects.read(FateRecord, keys.fate_key(timeline, number))) is not None:
            yield found
            number += 1

    def _put(self, timeline: str, number: int, closes: str, sequence: int) -> bool:
        record = FateRecord(
            timeline=timeline,
            number=number,
            closes=closes,
            sequence=sequence,
            at_ms=self.clock.now_ms(),
            write_id=self.write_ids(),
        )
        return self.objects.put(keys.fate_key(timeline, number), record) is PutOutcome.WON
