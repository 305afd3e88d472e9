"""The verbs of a checkpoint: trigger, begin, seal or abort, publish.

Every verb is idempotent, can be called by any process at any time, and finishes work that another process left half
done. Correctness rests on put-if-absent objects and on the tables' compare-and-set, never on a lock or a clock.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from tidemark.coordinator.checkpoints.attempts import Attempts, OwnedAttempt
from tidemark.coordinator.checkpoints.failure_policy import FailureReport, failure_of, in_a_row
from tidemark.coordinator.checkpoints.job import ignore_step
from tidemark.coordinator.plans.initial_offsets import to_ms
from tidemark.coordinator.plans.inputs import FilesExist
from tidemark.coordinator.plans.redrives import FindLetters, no_letters
from tidemark.coordinator.plans.runs import last_of_run
from tidemark.coordinator.plans.sink_inputs import sends_otherwise
from tidemark.coordinator.records.claim_records import PromotionClaims
from tidemark.coordinator.records.manifest_index import ManifestIndex
from tidemark.coordinator.records.objects import Objects, SlotEntry
from tidemark.coordinator.records.refusal_records import Refusals
from tidemark.coordinator.records.released_checkpoints import usable
from tidemark.coordinator.records.states import (
    Aborted,
    Completed,
    Covered,
    NothingOpen,
    OpenPlan,
    PlanState,
    Refused,
    SealedPlan,
    Subsumed,
)
from tidemark.coordinator.records.timelines import Head, Timelines, is_behind, is_outdated, read_before_id
from tidemark.declare.pipeline import Pipeline
from tidemark.errors import ConflictError, CorruptObjectError, FencedError, RecordRefusedError
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.failure import FailureReason
from tidemark.model.checkpoint.manifest import Checkpoint, Sealed
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.checkpoint.refused_records import DeliveryFailure
from tidemark.model.checkpoint.segments import StateHandle
from tidemark.model.checkpoint.store_objects import AbortRecord, Closing, Failure
from tidemark.ports import (
    CheckpointStore,
    Clock,
    ForeignTables,
    PlanRequest,
    PutOutcome,
    SourceLog,
    StepListener,
    WriteIds,
)

if TYPE_CHECKING:
    from tidemark.coordinator.plans.planner import Planner


# Publication: the put-if-absent of the manifest is the commit point of a checkpoint.
@dataclass(frozen=True, slots=True, kw_only=True)
class Publisher:
    """Publishes sealed plans. Any process may do so: all of them write the same bytes."""

    objects: Objects

    def publish(self, plan: CheckpointPlan, sealed: Sealed, before: SlotEntry | None = None) -> Completed | Subsumed:
        """Puts the manifest into the plan's slot.

        Args:
            plan: the plan.
            sealed: what its last attempt sealed.
            before: the entry of the slot before it, if this process has sealed the plan itself; None = the seal is
                looked for, and the entry read.

        Raises:
            FencedError: the attempt was never sealed, so its plan may have been aborted.
            ConflictError: another plan's manifest is in the slot.
            StoreError: the store could not be written.
        """
        if before is None:
            self._refuse_unsealed(plan, sealed)
        checkpoint = Checkpoint(plan=plan, sealed=sealed, covered_until_ms=self._covered_until(plan, before))
        slot = plan.slot
        won = self.objects.put(keys.slot_key(slot.timeline, slot.sequence), checkpoint) is PutOutcome.WON
        self.objects.see_head(slot.timeline, slot.sequence)
        if won:
            return Completed(checkpoint=checkpoint, won=True)
        entry = self.objects.first_entry(slot.timeline, slot.sequence)
        if isinstance(entry, Closing):
            return Subsumed(plan=plan, closing=entry)
        if entry == checkpoint:
            now = self.objects.slot(slot.timeline, slot.sequence)
            return Completed(checkpoint=now if isinstance(now, Checkpoint) else checkpoint)
        raise ConflictError(
            f"{plan.name} cannot be published: its slot {slot} belongs to another checkpoint",
            safe="the other checkpoint and every older restore point are intact.",
            next="run the pipeline again: it makes another plan.",
        )

    def _refuse_unsealed(self, plan: CheckpointPlan, sealed: Sealed) -> None:
        outcome = self.objects.outcome(plan.slot, sealed.attempt)
        if outcome is None or outcome.sealed != sealed:
            raise FencedError(
                f"attempt {sealed.attempt} of {plan.name} is not sealed and may never publish",
                safe="nothing was published.",
                next="run the pipeline again: it takes the next attempt.",
            )

    def _covered_until(self, plan: CheckpointPlan, entry: SlotEntry | None) -> int | None:
        before = self._covered_before(plan, entry)
        if plan.interval is None or not plan.covers:
            return before
        return max(plan.interval.end_ms, before if before is not None else plan.interval.end_ms)

    def _covered_before(self, plan: CheckpointPlan, entry: SlotEntry | None) -> int | None:
        if plan.parent is None:
            return None
        slot = plan.slot
        if entry is None:
            entry = Timelines(self.objects).entry_at(slot.timeline, slot.sequence - 1)
        if entry is None or isinstance(entry, Closing):
            raise CorruptObjectError(
                f"object missing: {keys.slot_key(slot.timeline, slot.sequence - 1)}, the parent of {plan.name}",
                safe="nothing was published.",
                next="restore the object from a backup of the warehouse, or go back to an older restore point.",
            )
        return entry.covered_until_ms


def _all_exist(handle: StateHandle) -> bool:
    return True


@dataclass(frozen=True, kw_only=True)
class CheckpointCoordinator:
    """Coordinates the checkpoints of one pipeline.

    Attributes:
        store: the object store, rooted at the pipeline's folder.
        log: Kafka, for planning.
        clock: the only clock.
        write_ids: the only source of randomness.
        listener: called at every step.
        files_exist: checks whether all files of a handle exist, before a compaction is adopted.
        find_letters: finds rows of dead-letter tables, for a plan with a redrive.
        foreign: the tables that broadcast states copy; None if no pipeline has any.
        name: the pipeline's name, for the commands in error messages.
        index: index of the pipeline's manifests. Only retention uses it.
    """

    store: CheckpointStore
    log: SourceLog
    clock: Clock
    write_ids: WriteIds
    listener: StepListener = ignore_step
    files_exist: FilesExist = _all_exist
    find_letters: FindLetters = no_letters
    foreign: ForeignTables | None = None
    name: str = "PIPELINE"
    index: ManifestIndex = field(default_factory=ManifestIndex, compare=False)

    @property
    def objects(self) -> Objects:
        """Typed access to the store."""
        return Objects(self.store, self.name)

    @property
    def timelines(self) -> Timelines:
        """Reads timelines."""
        return Timelines(self.objects)

    @property
    def promotion_claims(self) -> PromotionClaims:
        """Claims and ends of timelines."""
        return PromotionClaims(objects=self.objects, clock=self.clock, write_ids=self.write_ids)

    @property
    def attempts(self) -> Attempts:
        """Begins, finds and revokes attempts of plans."""
        return Attempts(objects=self.objects, clock=self.clock, write_ids=self.write_ids)

    def head(self, timeline: str | None = None) -> Head:
        """Returns the head of a timeline, by default of the live one."""
        return self.timelines.live_head() if timeline is None else self.timelines.head(timeline)

    def plan_of(self, checkpoint_id: int) -> CheckpointPlan:
        """Returns the plan with an id, whatever its outcome.

        Raises:
            NotFoundError: the id was never planned.
        """
        return self.timelines.plan(checkpoint_id)

    def checkpoint(self, checkpoint_id: int) -> Checkpoint:
        """Returns the completed checkpoint with an id, to be read, restored or pinned.

        Raises:
            NotFoundError: there is no such checkpoint.
            ReleasedError: retention has released it.
        """
        return usable(self.timelines, self.timelines.checkpoint(checkpoint_id))

    def checkpoints(self, timeline: str | None = None) -> Iterator[Checkpoint]:
        """Completed checkpoints of a timeline (by default the live one), then of its ancestors, newest first."""
        return self.timelines.chain(timeline if timeline is not None else self.timelines.live())

    def covered_by(self, interval_end: datetime, timeline: str | None = None) -> Checkpoint | None:
        """Returns the first checkpoint that covers an interval's end; None while none does."""
        end, head = to_ms(interval_end), self.head(timeline)
        if head.covered_until_ms is None or head.covered_until_ms < end:
            return None
        return self.timelines.covered_by(head.timeline, end)

    def state(self, plan: CheckpointPlan) -> PlanState:
        """Returns the state of a plan."""
        return self.attempts.state(plan)

    def open_plan(self, timeline: str | None = None) -> NothingOpen | PlanState:
        """Returns the plan at the next slot of a timeline (by default the live one), with its state."""
        return self.next_plan(self.head(timeline))

    def next_plan(self, head: Head) -> NothingOpen | PlanState:
        """Returns the plan at the slot after a head, with its state."""
        slot, aborted = head.next_slot, list[AbortRecord]()
        while (plan := self.objects.plan(slot)) is not None:
            state = self.attempts.state(plan)
            if not isinstance(state, Aborted):
                return state
            aborted.append(state.record)
            slot = replace(slot, k=slot.k + 1)
        return NothingOpen(slot=slot, aborted=tuple(aborted))

    def trigger(
        self, pipeline: Pipeline, request: PlanRequest, timeline: str | None = None, seen: Head | None = None
    ) -> OpenPlan | Completed | Covered | Refused:
        """Finds or makes the plan to execute next; a plan that was left sealed is published on the way.

        Args:
            pipeline: the declaration.
            request: the request.
            timeline: the timeline to plan on; by default the live one.
            seen: the head of that timeline, if the caller has just read it. What took its next slot in the meantime is
                found there, or wins it.

        Returns:
            OpenPlan: begin it. Completed: a sealed plan was found and published. Covered: the request's interval is
            covered, or everything that it asks to repeat is repeated. Refused: MIN_PAUSE or STOPPED.

        Raises:
            DataLostError, NotFoundError, BrokerError: the ranges cannot be planned; nothing was written.
            ConflictError: the declaration does not fit the state, or the named timeline was closed.
        """
        while True:
            head, seen = seen or self.head(timeline), None
            with self.objects.ahead(*read_before_id(pipeline.schemas(), head)) as forget:
                if forget is not None and self.objects.plan(head.next_slot) is not None:
                    # Its state is read from here on, and a stop may have come before that (adr/0068).
                    forget()
                found = self.next_plan(head)
                if isinstance(found, SealedPlan):
                    done = self.publish(found.plan, found.sealed)
                    if isinstance(done, Completed):
                        return done
                elif isinstance(found, OpenPlan | NothingOpen):
                    answer = self._open(pipeline, request, head, found)
                    if answer is not None:
                        return answer
            # Any other state means that the timeline moved on in the meantime: look again.

    def begin(
        self, plan: CheckpointPlan, timeout: timedelta | None = None, *, is_first: bool = False
    ) -> OwnedAttempt | PlanState:
        """Takes the next attempt of a plan.

        Args:
            plan: the plan.
            timeout: until when the attempt must be sealed.
            is_first: whether no attempt of the plan is known; then its state is read while attempt 1 is taken.

        Returns:
            The attempt, owned by the caller; or the plan's state, if no attempt can be taken.
        """
        self.listener("attempt", "before")
        deadline_ms = self._deadline(timeout)
        with self.objects.ahead(keys.read_ahead_of(plan.slot), over_puts=int(is_first)) as forget:
            early = self.attempts.begin_first(plan, deadline_ms) if is_first else None
            before = self.timelines.entry_at(plan.slot.timeline, plan.slot.sequence - 1)
            if is_behind(plan, before):
                # The plan is written, and its attempts have done nothing yet: an erasure that revised the parent either
                # saw the plan, or is seen here.
                if forget is not None:
                    forget()
                return self.abort(plan, state_erased(plan))
            found = early or self.attempts.begin(plan, deadline_ms)
        self.listener("attempt", "after")
        return replace(found, before=before) if isinstance(found, OwnedAttempt) else found

    def resume(self, plan: CheckpointPlan, number: int, timeout: timedelta | None = None) -> OwnedAttempt:
        """Returns the attempt that a parent process began and handed over by number.

        Raises:
            FencedError: the attempt was never begun, or has ended.
        """
        return self.attempts.resume(plan, number, self._deadline(timeout))

    def abort(self, plan: CheckpointPlan, failure: Failure) -> PlanState:
        """Closes a plan for good, unless it is sealed already.

        Returns:
            Aborted; or SealedPlan, Completed or Void if it was too late to abort.
        """
        return self.attempts.abort(plan, failure)

    def publish(self, plan: CheckpointPlan, sealed: Sealed, before: SlotEntry | None = None) -> Completed | Subsumed:
        """Puts the manifest, which is the commit point. Idempotent; see `Publisher.publish`."""
        self.listener("publish", "before")
        done = Publisher(objects=self.objects).publish(plan, sealed, before)
        self.listener("publish", "after")
        return done

    def complete(self, plan: CheckpointPlan, own: SealedPlan | None = None) -> PlanState:
        """Publishes a plan if it is sealed. Returns the plan's state.

        Args:
            plan: the plan.
            own: the plan as this process itself has just sealed it: nothing needs to be read, because nothing can end a
                sealed plan but an entry in its slot, and of that the put of the manifest learns.
        """
        if own is not None and own.before is not None:
            return self.publish(plan, own.sealed, own.before)
        with self.objects.ahead(keys.read_ahead_of(plan.slot)):
            found = self.state(plan)
            return self.publish(plan, found.sealed) if isinstance(found, SealedPlan) else found

    def record_failure(
        self, pipeline: Pipeline, plan: CheckpointPlan, error: BaseException, *, publishing: bool = False
    ) -> FailureReport:
        """Classifies a failure, aborts the plan if a retry cannot help, and counts failures in a row."""
        failure = failure_of(error, publishing=publishing)
        if isinstance(error, RecordRefusedError) and error.record:
            self.keep_refusal(plan, error)
        state = self.abort(plan, failure) if failure.reason.aborts else self.state(plan)
        counted = in_a_row(self._aborts(plan), failure, current_id=plan.id)
        if isinstance(state, Completed):
            counted = 0
        return FailureReport(
            failure=failure, state=state, in_a_row=counted, tolerable=pipeline.tolerable_failed_checkpoints
        )

    def keep_refusal(self, plan: CheckpointPlan, error: RecordRefusedError) -> None:
        """Records which record of an attempt Kafka refused, so that you can see it and skip it."""
        topic = next((table.topic for table in plan.sinks.values() if table.name == error.sink), None)
        Refusals(self.objects).put_failure(
            DeliveryFailure(
                sink=error.sink,
                topic=topic or "",
                checkpoint=plan.id,
                what=error.what,
                next=error.next,
                record=error.record,
                size=error.size,
                why=error.why,
                ahead="",
                at_ms=self.clock.now_ms(),
                write_id=self.write_ids(),
            )
        )

    def failures_in_a_row(self) -> int:
        """Counts failures since the newest checkpoint of the live timeline; only reasons that count are included."""
        slot, found = self.head().next_slot, []
        while (record := self.objects.abort(slot)) is not None:
            found.append(record)
            slot = replace(slot, k=slot.k + 1)
        return in_a_row(found)

    def _open(
        self, pipeline: Pipeline, request: PlanRequest, head: Head, found: OpenPlan | NothingOpen
    ) -> OpenPlan | Covered | Refused | None:
        if isinstance(found, NothingOpen):
            covering = self._covering(pipeline, request, head)
            if covering is not None:
                return Covered(checkpoint=covering)
            planned = self._planner().plan(pipeline, request, head, found)
            if isinstance(planned, Refused | Covered) or not planned.adopted:
                return planned
            return None  # another process's plan: treated like any open plan
        if found.plan.fingerprint != pipeline.fingerprint:
            self.abort(found.plan, _code_changed(found.plan))
        elif is_outdated(self.objects, found.plan):
            self.abort(found.plan, state_erased(found.plan))
        elif sends_otherwise(pipeline, found.plan) and found.plan.slot.timeline == self.timelines.live():
            self.abort(found.plan, _promoted(found.plan))
        else:
            return replace(found, adopted=True)
        return None

    def _covering(self, pipeline: Pipeline, request: PlanRequest, head: Head) -> Checkpoint | None:
        """The checkpoint that satisfies a request already: it covers the interval, or ended the run that has none."""
        if request.interval_end is not None:
            return self.covered_by(request.interval_end, head.timeline)
        return last_of_run(self.timelines, head, request) if pipeline.is_bounded(request.max_records) else None

    def _aborts(self, plan: CheckpointPlan) -> list[AbortRecord]:
        found = [self.objects.abort(replace(plan.slot, k=k)) for k in range(1, plan.slot.k + 1)]
        return [record for record in found if record is not None]

    def _planner(self) -> "Planner":
        from tidemark.coordinator.plans.planner import Planner  # most commands plan nothing

        return Planner(
            objects=self.objects,
            log=self.log,
            clock=self.clock,
            write_ids=self.write_ids,
            listener=self.listener,
            files_exist=self.files_exist,
            find_letters=self.find_letters,
            foreign=self.foreign,
        )

    def _deadline(self, timeout: timedelta | None) -> int | None:
        return None if timeout is None else self.clock.now_ms() + int(timeout.total_seconds() * 1000)


def state_erased(plan: CheckpointPlan) -> Failure:
    """The failure of a plan whose parent was revised by an erasure."""
    return Failure(
        reason=FailureReason.STATE_ERASED,
        message=f"a key was erased from the state that {plan.name} was planned from",
        next="nothing: the same offsets are planned again.",
    )


def _code_changed(plan: CheckpointPlan) -> Failure:
    return Failure(
        reason=FailureReason.CODE_CHANGED,
        message=f"{plan.name} was planned by other code than is deployed now",
        next="nothing: the same offsets are planned again.",
    )


def _promoted(plan: CheckpointPlan) -> Failure:
    return Failure(
        reason=FailureReason.PROMOTED,
        message=f"{plan.name} was planned while timeline {plan.slot.timeline} was a fork, which sends nothing to Kafka",
        next="nothing: the same offsets are planned again, and sent.",
    )
