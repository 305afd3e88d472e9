"""Requests to redrive dead letters, as the store has them; `coordinator.plans.redrives` takes them up."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace

from tidemark.coordinator.records.objects import Objects, Series
from tidemark.coordinator.records.timelines import Timelines
from tidemark.errors import ConflictError
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.checkpoint.redrive import LetterRow, RedriveRecord, RedriveWithdrawal, expand_rows
from tidemark.model.checkpoint.segments import StateHandle
from tidemark.ports import PutOutcome


@dataclass(frozen=True, slots=True)
class RedriveRequests:
    """The requests of one pipeline, numbered from 1 without gaps."""

    objects: Objects

    @property
    def series(self) -> Series[RedriveRecord]:
        """All requests."""
        return Series(self.objects, RedriveRecord, "redrives/", keys.redrive_key)

    def after(self, number: int) -> Iterator[RedriveRecord]:
        """The requests after a number, oldest first. Reads one by one: a stale listing must not hide one for ever."""
        while (found := self.objects.read(RedriveRecord, keys.redrive_key(number + 1))) is not None:
            yield found
            number += 1

    def withdrawal(self, number: int) -> RedriveWithdrawal | None:
        """The withdrawal of a request; None if it was not withdrawn."""
        return self.objects.read(RedriveWithdrawal, keys.redrive_withdrawal_key(number))

    def withdraw(self, draft: RedriveWithdrawal) -> RedriveWithdrawal:
        """Withdraws a request; returns the first withdrawal.

        Raises:
            StoreError: the store could not be written.
        """
        self.objects.put(keys.redrive_withdrawal_key(draft.number), draft)
        return self.withdrawal(draft.number) or draft

    def put(self, draft: RedriveRecord) -> RedriveRecord:
        """Puts a request under the next free number.

        Raises:
            ConflictError: its timeline has ended, so that no plan would take it up.
            StoreError: the store could not be written.
        """
        live = Timelines(self.objects).live()
        if draft.timeline != live:
            raise ConflictError(
                f"timeline {draft.timeline} ended in favour of {live}",
                safe="nothing was written.",
                next="run the command again: it looks at the letters of the live timeline.",
            )
        number, _ = self.series.newest()
        while True:
            number += 1
            made = replace(draft, number=number)
            if self.series.put(number, made) is PutOutcome.WON:
                return made


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveHistory:
    """The newest checkpoints of a line, and the dead letters that they have redriven.

    Attributes:
        letters: the dead-letter handles of the newest checkpoint, or of the plan that comes after it, by uid.
        plans: their plans by id, newest first.
        redriven: the redriven rows, by the uid that the operator has in `letters`.
        read: the records that their operators have read, by the same uid.
    """

    letters: InitVar[Mapping[str, StateHandle]]
    plans: dict[int, CheckpointPlan] = field(default_factory=dict)
    redriven: dict[str, set[LetterRow]] = field(default_factory=dict)
    read: dict[str, int] = field(default_factory=dict)
    _names: dict[str, str] = field(default_factory=dict)
    _newer: dict[str, StateHandle] = field(default_factory=dict)

    def __post_init__(self, letters: Mapping[str, StateHandle]) -> None:
        self._names.update({uid: uid for uid in letters})
        self._newer.update(letters)

    @classmethod
    def of(
        cls, timelines: Timelines, timeline: str, oldest: int, letters: Mapping[str, StateHandle]
    ) -> "RedriveHistory":
        """Reads the checkpoints of a timeline and its ancestors back to an id.

        A letter is redriven after the checkpoint that wrote it, so older checkpoints have nothing to say about it.
        """
        made = cls(letters=letters)
        for found in timelines.chain(timeline):
            if found.id < oldest:
                break
            made.add(found)
        return made

    def add(self, checkpoint: Checkpoint) -> None:
        """Adds the next older checkpoint."""
        plan = checkpoint.plan
        self.plans[plan.id] = plan
        self._follow_renames(checkpoint)
        for ack in checkpoint.sealed.acks:
            if ack.uid in self._names:
                self.read[self._names[ack.uid]] = self.read.get(self._names[ack.uid], 0) + ack.read
        for redrive in plan.redrives:
            if redrive.uid in self._names:
                self.redriven.setdefault(self._names[redrive.uid], set()).update(expand_rows(redrive.rows))

    def _follow_renames(self, checkpoint: Checkpoint) -> None:
        """Finds operators that had another uid: manifests do not name renames, but the new uid has the old letters."""
        schemas = checkpoint.plan.schemas
        for uid in [uid for uid in self._names if uid in self._newer and uid not in schemas]:
            for ack in checkpoint.sealed.acks:
                if ack.uid not in self._newer and ack.dead_letters.segments == self._newer[uid].segments != ():
                    self._names[ack.uid] = self._names.pop(uid)
                    del self._newer[uid]
                    break
        self._newer.update(checkpoint.plan.dead_letters)

    def open_rows(self, uid: str, rows: set[LetterRow]) -> set[LetterRow]:
        """Returns the rows that are letters of the line: one of its checkpoints wrote them, and none redrove them."""
        return {row for row in rows if row.checkpoint in self.plans} - self.redriven.get(uid, set())

    def taken_up(self, request: RedriveRecord) -> Sequence[int]:
        """Returns the ids of the checkpoints that redrove letters for a request."""
        return [
            number
            for number, plan in self.plans.items()
            if any(request.number in redrive.requests for redrive in plan.redrives)
        ]

    def rows_given(self, request: RedriveRecord) -> dict[int, set[LetterRow]]:
        """Returns the rows of a request that checkpoints gave the operator, by the ids of those checkpoints."""
        wanted, given = expand_rows(request.rows), dict[int, set[LetterRow]]()
        for number in self.taken_up(request):
            for redrive in self.plans[number].redrives:
                if request.number in redrive.requests:
                    given.setdefault(number, set()).update(expand_rows(redrive.rows) & wanted)
        return given
