"""Claims and ends: where a promote, a restore and an end of one timeline meet (ADR 0018, 0024).

They take slots of different timelines. A promote or a restore first claims the live timeline's next slot, then writes
it. An end is put after the last claim, once every claimed slot holds another entry. The entry of a slot never changes,
so of a claim and an end at least one sees the other, without clocks.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tidemark.coordinator.records.objects import Objects
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.store_objects import Closing
from tidemark.model.retention.promotion_claims import PromotionClaim
from tidemark.ports import Clock, PutOutcome, WriteIds


@dataclass(frozen=True, slots=True, kw_only=True)
class PromotionClaims:
    """Reads and writes the claims and ends of one pipeline's timelines."""

    objects: Objects
    clock: Clock
    write_ids: WriteIds

    def claim(self, timeline: str, closes: str, sequence: int) -> bool:
        """Announces a promote or a restore, which may write that slot from now on. False if the timeline has ended."""
        while True:
            found = list(self._all(timeline))
            if found and found[-1].is_end:
                return False
            if any((r.closes, r.sequence) == (closes, sequence) for r in found):
                return True
            if self._put(timeline, len(found) + 1, closes, sequence):
                return True

    def end(self, timeline: str) -> PromotionClaim | None:
        """Ends a timeline: from now on it cannot be promoted. A repeated call finds that it has ended.

        Returns:
            None; or the claim that prevents the end: the timeline was promoted, or may be promoted at any moment.
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
        """Whether the end of a timeline was announced, so that nothing can make it live."""
        return any(record.is_end for record in self._all(timeline))

    def current(self, timeline: str) -> PromotionClaim | None:
        """The claim that prevents the end of a timeline; None if there is none."""
        return next((r for r in self._all(timeline) if not r.is_end and self.may_win(r)), None)

    def may_win(self, claim: PromotionClaim) -> bool:
        """Whether the claimed slot is free, or holds the closing of the promote that the claim announces."""
        entry = self.objects.first_entry(claim.closes, claim.sequence)
        return entry is None or (isinstance(entry, Closing) and entry.successor == claim.timeline)

    def _all(self, timeline: str) -> Iterator[PromotionClaim]:
        number = 1
        while (found := self.objects.read(PromotionClaim, keys.promotion_claim_key(timeline, number))) is not None:
            yield found
            number += 1

    def _put(self, timeline: str, number: int, closes: str, sequence: int) -> bool:
        record = PromotionClaim(
            timeline=timeline,
            number=number,
            closes=closes,
            sequence=sequence,
            at_ms=self.clock.now_ms(),
            write_id=self.write_ids(),
        )
        return self.objects.put(keys.promotion_claim_key(timeline, number), record) is PutOutcome.WON
