"""Attempts: each attempt of a plan has one outcome key, for which *sealed* and *revoked* compete.

Attempt n belongs to the process that put *revoked* on n-1; attempt 0 exists only to be revoked by the owner of attempt
1. An abort revokes the last attempt for good (ADR 0003), so a plan is either sealed or aborted, never both.
"""

from dataclasses import dataclass

from tidemark.coordinator.records.objects import Objects, SlotEntry
from tidemark.coordinator.records.states import Aborted, Completed, OpenPlan, PlanState, SealedPlan, Subsumed
from tidemark.errors import CheckpointExpiredError, ConflictError, FencedError
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.manifest import Checkpoint, Sealed
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.checkpoint.store_objects import AbortRecord, Closing, Failure, Outcome, OutcomeKind
from tidemark.ports import Clock, PutOutcome, WriteIds
from tidemark.ports.caching import Reading


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedAttempt:
    """One attempt of a plan, owned by this process (port `Attempt`).

    Attributes:
        plan: the plan that the attempt executes.
        number: number of the attempt.
        deadline_ms: when the attempt expires; None = never.
        before: the entry of the slot before the plan's, as read when the attempt began; None if it was not read.
    """

    plan: CheckpointPlan
    number: int
    deadline_ms: int | None
    objects: Objects
    clock: Clock
    write_ids: WriteIds
    before: SlotEntry | None = None

    def check(self) -> None:
        """Reads the attempt's outcome key. Called inside every commit, and before records are sent.

        Raises:
            FencedError: a later attempt or an abort revoked this one.
            CheckpointExpiredError: the attempt exceeded the checkpoint timeout.
        """
        self.refuse(self.objects.outcome(self.plan.slot, self.number))

    def start_check(self) -> "OwnedCheck":
        """Starts `check`, which `OwnedCheck.settle` ends. Called with every step, see `job.Steps`."""
        return OwnedCheck(self, self.objects.start(keys.outcome_key(self.plan.slot, self.number)))

    def refuse(self, outcome: Outcome | None) -> None:
        """Raises as `check` does for an outcome that was read.

        Raises:
            FencedError, CheckpointExpiredError: see `check`.
        """
        if outcome is not None and outcome.kind is OutcomeKind.REVOKED:
            raise _fenced(self.plan, self.number)
        if outcome is None and self.deadline_ms is not None and self.clock.now_ms() > self.deadline_ms:
            raise CheckpointExpiredError(
                f"{self.plan.name} expired: attempt {self.number} exceeded the pipeline's checkpoint_timeout",
                safe="every completed checkpoint is intact; nothing was published.",
                next="run the pipeline again; if it stays too slow, raise checkpoint_timeout or lower max_records.",
            )

    def seal(self, sealed: Sealed) -> None:
        """Puts *sealed*, with all acks.

        Raises:
            FencedError: *revoked* came first.
        """
        outcome = Outcome(
            kind=OutcomeKind.SEALED,
            attempt=self.number,
            sealed=sealed,
            abort=None,
            write_id=self.write_ids(),
            at_ms=self.clock.now_ms(),
        )
        if self.objects.put(keys.outcome_key(self.plan.slot, self.number), outcome) is PutOutcome.LOST:
            raise _fenced(self.plan, self.number)


@dataclass(frozen=True, slots=True)
class OwnedCheck:
    """A check of an attempt that is under way (port `StartedCheck`)."""

    attempt: OwnedAttempt
    reading: Reading[bytes | None]

    def is_answered(self) -> bool:
        """Whether the outcome key has been read."""
        return self.reading.done()

    def settle(self) -> None:
        """Waits for the read.

        Raises:
            FencedError, CheckpointExpiredError: see `OwnedAttempt.check`.
            StoreError: the outcome key could not be read.
        """
        attempt, key = self.attempt, keys.outcome_key(self.attempt.plan.slot, self.attempt.number)
        attempt.refuse(attempt.objects.parse(Outcome, key, self.reading.result()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempts:
    """Begins, finds and revokes the attempts of plans."""

    objects: Objects
    clock: Clock
    write_ids: WriteIds

    def state(self, plan: CheckpointPlan) -> PlanState:
        """Returns the state of a plan. An abort that was decided but not yet recorded is recorded on the way."""
        taken = self._slot_taken(plan)
        return taken if taken is not None else self._walk(plan)

    def begin(self, plan: CheckpointPlan, deadline_ms: int | None = None) -> OwnedAttempt | PlanState:
        """Takes the plan's next attempt by revoking the last one, or returns the state that leaves none to take."""
        while isinstance(found := self.state(plan), OpenPlan):
            if self._revoke(plan, found.attempt, None):
                return self._owned(plan, found.attempt + 1, deadline_ms)
        return found

    def begin_first(self, plan: CheckpointPlan, deadline_ms: int | None = None) -> OwnedAttempt | PlanState:
        """Like `begin`, for a plan of which no attempt is known to have begun: takes attempt 1, then reads the state.

        So both can be under way at the same time. Whether attempt 1 may be taken is decided by the put alone. If the
        slot is taken already, the attempt is never executed, as if the slot had been taken just behind the put.
        """
        won = self._revoke(plan, 0, None)
        taken = self._slot_taken(plan)
        if taken is not None:
            return taken
        return self._owned(plan, 1, deadline_ms) if won else self.begin(plan, deadline_ms)

    def resume(self, plan: CheckpointPlan, number: int, deadline_ms: int | None = None) -> OwnedAttempt:
        """Returns an attempt that the caller's parent process began and handed over by number.

        Raises:
            FencedError: the attempt was never begun, or has ended.
        """
        found = self.state(plan)
        if not isinstance(found, OpenPlan) or found.attempt != number or number == 0:
            raise _fenced(plan, number)
        return self._owned(plan, number, deadline_ms)

    def abort(self, plan: CheckpointPlan, failure: Failure) -> PlanState:
        """Revokes the last attempt for good and writes the abort record. A sealed plan is returned unchanged."""
        while isinstance(found := self.state(plan), OpenPlan):
            self._revoke(plan, found.attempt, failure)
        return found

    def _owned(self, plan: CheckpointPlan, number: int, deadline_ms: int | None) -> OwnedAttempt:
        return OwnedAttempt(
            plan=plan,
            number=number,
            deadline_ms=deadline_ms,
            objects=self.objects,
            clock=self.clock,
            write_ids=self.write_ids,
        )

    def _slot_taken(self, plan: CheckpointPlan) -> Completed | Subsumed | None:
        entry = self.objects.first_entry(plan.slot.timeline, plan.slot.sequence)
        if entry is None:
            return None
        if isinstance(entry, Closing):
            return Subsumed(plan=plan, closing=entry)
        if isinstance(entry, Checkpoint) and entry.plan == plan:
            now = self.objects.slot(plan.slot.timeline, plan.slot.sequence)
            return Completed(checkpoint=now if isinstance(now, Checkpoint) else entry)
        # This plan was aborted, and another plan of the same slot completed.
        if (record := self.objects.abort(plan.slot)) is not None and record.id == plan.id:
            return None
        raise ConflictError(
            f"the slot {plan.slot} of {plan.name} belongs to another checkpoint",
            safe="nothing was written.",
            next="run the command again: the timeline has moved on, so it makes another plan.",
        )

    def _walk(self, plan: CheckpointPlan) -> OpenPlan | SealedPlan | Aborted:
        number = 0
        while (outcome := self.objects.outcome(plan.slot, number)) is not None:
            if outcome.sealed is not None:
                return SealedPlan(plan=plan, sealed=outcome.sealed)
            if outcome.abort is not None:
                return Aborted(plan=plan, record=self._record_abort(plan, outcome, outcome.abort))
            number += 1
        return OpenPlan(plan=plan, attempt=number)

    def _revoke(self, plan: CheckpointPlan, number: int, abort: Failure | None) -> bool:
        outcome = Outcome(
            kind=OutcomeKind.REVOKED,
            attempt=number,
            sealed=None,
            abort=abort,
            write_id=self.write_ids(),
            at_ms=self.clock.now_ms(),
        )
        return self.objects.put(keys.outcome_key(plan.slot, number), outcome) is PutOutcome.WON

    def _record_abort(self, plan: CheckpointPlan, outcome: Outcome, failure: Failure) -> AbortRecord:
        # Everything comes from the final revocation, so every process that finishes the abort writes the same bytes.
        record = AbortRecord(
            id=plan.id,
            slot=plan.slot,
            attempts=outcome.attempt,
            failure=failure,
            at_ms=outcome.at_ms,
            write_id=outcome.write_id,
        )
        if self.objects.abort(plan.slot) is None:
            self.objects.put(keys.abort_key(plan.slot), record)
        return record


def _fenced(plan: CheckpointPlan, number: int) -> FencedError:
    return FencedError(
        f"attempt {number} of {plan.name} was revoked: a later attempt or an abort took over",
        safe="the files that this attempt wrote belong to no state; the next commit removes them.",
        next=f"tidemark checkpoint list {plan.pipeline}    (shows the outcome; the later attempt continues).",
    )
