"""The planner freezes everything that decides a checkpoint's result, before anything is read."""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice

from tidemark.coordinator.plans.clock_rules import plan_clocks, plan_frontiers
from tidemark.coordinator.plans.cut import Bound, mean_bytes
from tidemark.coordinator.plans.initial_offsets import to_ms
from tidemark.coordinator.plans.inputs import FilesExist, InputPlanner, Parent, PlannedInputs
from tidemark.coordinator.plans.ranges import PlannedRanges, ReadLimit, plan_ranges, refuse_older_positions
from tidemark.coordinator.plans.redrives import FindLetters, RedrivePlanner
from tidemark.coordinator.plans.replay_ranges import (
    RecordedStep,
    ReplayProgress,
    left_to_repeat,
    recorded_ranges,
    remaining,
    steps,
)
from tidemark.coordinator.plans.runs import Runs
from tidemark.coordinator.plans.sink_inputs import FittingSink, planned_outboxes, planned_sinks, timeline_sinks
from tidemark.coordinator.plans.table_copies import PlannedCopies, plan_copies
from tidemark.coordinator.records.objects import Objects
from tidemark.coordinator.records.released_checkpoints import usable
from tidemark.coordinator.records.states import Covered, NothingOpen, OpenPlan, Refused
from tidemark.coordinator.records.timelines import (
    Erasures,
    Freezer,
    Head,
    Stops,
    Timelines,
    read_behind_head,
    refuse_stillborn,
)
from tidemark.declare.pipeline import Pipeline
from tidemark.errors import ConflictError, CorruptObjectError, DataLostError, StoreError, UsageError
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.broadcast_copies import TableVersion
from tidemark.model.checkpoint.failure import FailureReason
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.plan import CheckpointPlan, Interval, Slot
from tidemark.model.checkpoint.redrive import RedriveRecord
from tidemark.model.checkpoint.segments import StateHandle
from tidemark.model.checkpoint.store_objects import Genesis
from tidemark.model.core.clocks import PlannedClock
from tidemark.model.core.offsets import BarrierOffsets, OffsetRanges, TopicPartition
from tidemark.ports import Clock, ForeignTables, Log, PlanRequest, PutOutcome, SourceLog, StepListener, WriteIds
from tidemark.sql.resolve import names_of, stored_texts

_log = logging.getLogger("tidemark")

# A clock that is far ahead must not set logical time: logical time never decreases on a timeline, and it expires state.
LEAP = timedelta(days=90)
"""How far logical time may exceed the parent checkpoint, the time it was made, and every record, without confirmation.

Three months without checkpoints and records are unlikely. State that a clock expires by being wrong by less comes back
when you restore the parent.
"""
_MS = timedelta(milliseconds=1)
_TOO_MUCH = (FailureReason.EXPIRED, FailureReason.ENGINE_ERROR)
"""Why the plan after an aborted one reads half as much: the time, or Spark's memory, did not suffice."""
_LOOK_BACK = 20
"""Checkpoints that are read at most, to find one that has measured how large records are."""


def refuse_leap(pipeline: str, logical_ms: int, head: Head, partitions: Iterable[TopicPartition], log: Log) -> None:
    """Refuses a logical time that is far from the parent's, from the time the parent was made, and from every record's.

    Kafka is asked only if the parent does not confirm the time. A first checkpoint has no state to lose.

    Args:
        pipeline: its name.
        logical_ms: logical time of the next plan.
        head: the head that the plan builds on.
        partitions: the partitions that the plan reads.
        log: Kafka.

    Raises:
        ConflictError: nothing confirms the time.
        NotFoundError, BrokerError: as the log raises.
    """
    known, since = _known_ms(head), logical_ms - LEAP // _MS
    if known is None or known >= since:
        return
    at = log.offsets_at(dict.fromkeys(partitions, since))
    if any(offset is not None for offset in at.values()):
        return
    raise ConflictError(
        f"logical time would be {_iso(logical_ms)}: {timedelta(milliseconds=logical_ms - known).days} days after the"
        f" newest checkpoint was made, and no record is newer than {_iso(since)}",
        safe="nothing was planned; logical time never decreases, so a clock that is ahead would expire state for good.",
        next=f"correct the clock or the interval; if the time is right: tidemark run {pipeline} --accept-time",
    )


def _known_ms(head: Head) -> int | None:
    entry = head.entry
    if isinstance(entry, Checkpoint):
        return max(entry.plan.logical_time_ms, entry.plan.planned_at_ms)
    return max(entry.logical_time_ms, entry.at_ms) if isinstance(entry, Genesis) else None


def _iso(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, tz=UTC).isoformat(timespec="seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    """The ranges and the time of a plan: recorded ones if it repeats checkpoints, otherwise the current ones."""

    ranges: PlannedRanges
    copied: PlannedCopies
    logical_time_ms: int
    watermark_ms: int | None
    watermarks: Mapping[TopicPartition, int]
    interval: Interval | None
    repeats: RecordedStep | None = None
    repeats_to: int = 0
    run: str = ""
    reduced_to: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Planner:
    """Makes the next plan of a timeline, unless a stop or the minimum pause forbids it."""

    objects: Objects
    log: SourceLog
    clock: Clock
    write_ids: WriteIds
    listener: StepListener
    files_exist: FilesExist
    find_letters: FindLetters
    foreign: ForeignTables | None = None

    def plan(
        self, pipeline: Pipeline, request: PlanRequest, head: Head, free: NothingOpen
    ) -> OpenPlan | Covered | Refused:
        """Freezes and puts the next plan.

        Args:
            pipeline: the declaration.
            request: the caller's request.
            head: head of the timeline.
            free: the free slot, as found after `head` was read.

        Returns:
            The plan in the slot: this planner's own, or exactly the plan of a planner that was faster. Covered: all
            recorded checkpoints are repeated already.

        Raises:
            DataLostError, NotFoundError, BrokerError: see `plan_ranges` and `recorded_ranges`.
            IncompatibleStateError: the declaration does not fit the state.
            ConflictError: the timeline was closed, no recorded checkpoint follows its head, or logical time would leap.
            ReleasedError: the checkpoint that the timeline began at, or would continue from, was released.
        """
        parent = Parent.of(head)
        self._refuse_stillborn(head)
        refused = self._stopped(pipeline) or self._drained(pipeline, request, head)
        reading = refused or self._reading(pipeline, request, head, parent, free)
        if not isinstance(reading, _Reading):
            return reading
        allow_removed = request.allow_non_restored_state
        inputs = self._input_planner.plan(pipeline, free.slot, parent, allow_removed=allow_removed)
        # The id is put at the same time: these reads have to come behind the head, and before the plan (adr/0071).
        with self.objects.ahead(*read_behind_head(inputs.schemas.values(), parent.requests_seen), over_puts=1):
            draft = self._draft(pipeline, request, parent, reading, inputs)
            draft = replace(
                self._without_expired_letters(pipeline, self._with_redrives(pipeline, draft, parent, reading)),
                parent_revision=parent.revision,
                erasures=Erasures(self.objects).newest(),
            )
            won = self._freezer.freeze(draft) is PutOutcome.WON
        found = draft if won else self.objects.plan(free.slot)
        if found is None:
            raise StoreError(
                f"the store says that {keys.plan_key(free.slot)} exists, but does not return it",
                safe="every completed checkpoint is intact.",
                next="check the store's health, then run the same command again.",
            )
        return OpenPlan(plan=found, adopted=not won)

    def _reading(
        self, pipeline: Pipeline, request: PlanRequest, head: Head, parent: Parent, free: NothingOpen
    ) -> _Reading | Covered | Refused:
        if request.replay_to is None:
            repeated = self._repeat_cuts(pipeline, request, parent) if parent.repeats_to else None
            early = None if repeated or request.drains else self._too_early(pipeline, request, head)
            return repeated or early or self._read_new(pipeline, request, head, parent, free)
        timelines = Timelines(self.objects)
        left = remaining(timelines, ReplayProgress.of(head), request.replay_to)
        step = next(steps(pipeline, left, request.max_records), None)
        if step is None:
            return Covered(checkpoint=timelines.checkpoint(request.replay_to))
        return self._read_recorded(pipeline, request, parent, step, step.last.repeats_to)

    def _repeat_cuts(self, pipeline: Pipeline, request: PlanRequest, parent: Parent) -> _Reading | None:
        """The next checkpoint whose cuts a restored timeline repeats (adr/0057); None if it ends repeating.

        Raises:
            DataLostError: Kafka no longer has the records, and the request does not accept that.
        """
        timelines = Timelines(self.objects)
        assert parent.id is not None  # noqa: S101  (a timeline that repeats began at a checkpoint)
        left = left_to_repeat(timelines, timelines.checkpoint(parent.id), parent.repeats_to)
        found = tuple(islice(steps(pipeline, left, None), 2))
        if not found:
            return None
        try:
            return self._read_recorded(pipeline, request, parent, found[0], parent.repeats_to if found[1:] else 0)
        except DataLostError as error:
            # The frontier does not show which pairs a sink has; only the cuts that made them make the same ones.
            joins = [s.uid for s in pipeline.schemas().values() if s.interval_join is not None]
            if request.accept_loss and not joins:
                return None
            rest = "to read the rest in one checkpoint, so that other records are late, repeat with --accept-loss; or "
            again = f"{'' if joins else rest}restore the same checkpoint with --restore-sinks."
            raise DataLostError(
                f"{error.what}: {found[0].last.name} cannot be repeated", safe=error.safe, next=again
            ) from error

    def _read_new(
        self, pipeline: Pipeline, request: PlanRequest, head: Head, parent: Parent, free: NothingOpen
    ) -> _Reading:
        interval, now_ms = _interval(request), self.clock.now_ms()
        logical_ms = interval.end_ms if interval else now_ms
        limit = None if request.drains else self._limit(pipeline, request, head, free)
        ranges = plan_ranges(pipeline, request, parent, self.log, now_ms=now_ms, limit=limit)
        ranges = _without_records(ranges) if request.drains else ranges
        if not request.accept_time:
            refuse_leap(pipeline.name, logical_ms, head, ranges.read, self.log)
        return _Reading(
            ranges=ranges,
            copied=self._copies(pipeline, request, parent),
            logical_time_ms=logical_ms,
            watermark_ms=parent.watermark_ms,
            watermarks=parent.watermarks,
            interval=interval,
            run="" if limit is None or limit.runs is None else limit.runs.id,
            reduced_to=0 if limit is None or ranges.covers or not limit.bound.is_reduced else limit.bound.offsets,
        )

    def _read_recorded(
        self, pipeline: Pipeline, request: PlanRequest, parent: Parent, step: RecordedStep, repeats_to: int
    ) -> _Reading:
        ranges = recorded_ranges(pipeline, step, parent, self.log)
        return _Reading(
            ranges=ranges,
            copied=self._copies(pipeline, request, parent, step.versions),
            logical_time_ms=step.last.logical_time_ms,
            watermark_ms=step.first.watermark_ms,
            watermarks={tp: at for tp, at in step.first.watermarks.items() if tp in ranges.ranges},
            interval=step.interval,
            repeats=step,
            repeats_to=repeats_to,
        )

    def _copies(
        self,
        pipeline: Pipeline,
        request: PlanRequest,
        parent: Parent,
        recorded: Mapping[str, TableVersion] | None = None,
    ) -> PlannedCopies:
        if not pipeline.tables:
            return PlannedCopies()
        return plan_copies(pipeline, request, parent, self.foreign, recorded)

    def _with_redrives(
        self, pipeline: Pipeline, draft: CheckpointPlan, parent: Parent, reading: _Reading
    ) -> CheckpointPlan:
        planner = RedrivePlanner(objects=self.objects, pipeline=pipeline, find=self.find_letters)
        draft, recorded = replace(draft, requests_seen=parent.requests_seen), reading.repeats
        if draft.drains:
            return draft
        if recorded is not None:
            return planner.repeat(draft, recorded.plans) if any(p.redrives for p in recorded.plans) else draft
        # Most plans find no new request, and that is all they do about it.
        is_new = self.objects.read(RedriveRecord, keys.redrive_key(draft.requests_seen + 1)) is not None
        return planner.take_up(draft) if is_new else draft

    def _without_expired_letters(self, pipeline: Pipeline, draft: CheckpointPlan) -> CheckpointPlan:
        """Hides the dead letters that have expired, except those that the plan redrives and later ones."""
        hidden = {}
        for uid, handle in draft.dead_letters.items():
            redrive = draft.redrive_of(uid)
            oldest = min((rows.checkpoint for rows in redrive.rows), default=None) if redrive else None
            made = self._hide_expired(draft.slot, draft.logical_time_ms, handle, pipeline.keep_dead_letters_for)
            hidden[uid] = made if oldest is None else replace(made, expired=min(made.expired, oldest - 1))
        return replace(draft, dead_letters=hidden)

    def _draft(
        self, pipeline: Pipeline, request: PlanRequest, parent: Parent, reading: _Reading, inputs: PlannedInputs
    ) -> CheckpointPlan:
        slot = inputs.slot
        refuse_older_positions(pipeline, parent, reading.ranges, {uid for uid, held in inputs.handles.items() if held})
        logical_ms = max(reading.logical_time_ms, parent.logical_time_ms or 0)
        hide = partial(self._hide_expired, slot, logical_ms)
        declared = timeline_sinks(pipeline, slot.timeline, parent, self.log, Timelines(self.objects))
        fitting, adopted = self._compacted_sinks(declared, slot.timeline, hide)
        number = self._freezer.take_id(slot, (parent.id or 0) + 1)
        sinks = planned_sinks(fitting, number)
        return CheckpointPlan(
            pipeline=pipeline.name,
            id=number,
            slot=slot,
            parent=parent.id,
            ranges=reading.ranges.ranges,
            topic_ids=reading.ranges.topic_ids,
            sources=reading.ranges.sources,
            handles=inputs.handles,
            dead_letters=inputs.dead_letters,
            sinks=sinks,
            outboxes=planned_outboxes(parent, sinks),
            tables=inputs.tables(pipeline.name, slot.timeline, number),
            schemas=inputs.schemas,
            adopted={**inputs.adopted, **adopted},
            left_behind=inputs.left_behind,
            operator_states=inputs.operator_states,
            logical_time_ms=logical_ms,
            watermark_ms=reading.watermark_ms,
            watermarks=reading.watermarks,
            broadcast_versions=reading.copied.versions,
            broadcast_ids=reading.copied.ids,
            copies=reading.copied.copies,
            interval=reading.interval,
            covers=reading.ranges.covers,
            pending=reading.ranges.pending,
            isolation=pipeline.isolation,
            fingerprint=pipeline.fingerprint,
            formats=pipeline.formats,
            losses=reading.ranges.losses,
            origin=request.origin,
            planned_at_ms=self.clock.now_ms(),
            write_id=self.write_ids(),
            queries={uid: names_of(stored_texts(schema)) for uid, schema in inputs.schemas.items()},
            replays=() if reading.repeats is None else reading.repeats.ids,
            run=reading.run,
            reduced_to=reading.reduced_to,
            inputs=pipeline.recorded_inputs,
            clocks=self._clocks(pipeline, parent, reading),
            caps_event_time=reading.repeats is None or reading.repeats.first.caps_event_time,
            repeats_to=reading.repeats_to,
            sinks_are_ahead=parent.repeats_to > 0 and reading.repeats is not None,
            event_times=pipeline.event_times,
            drains=request.drains if reading.repeats is None else reading.repeats.last.drains,
            columns=pipeline.columns,
        )

    def _clocks(self, pipeline: Pipeline, parent: Parent, reading: _Reading) -> dict[str, PlannedClock]:
        if not (pipeline.clocked or pipeline.watermarks):
            return {}
        recorded = None if reading.repeats is None else reading.repeats.last
        found = plan_clocks(pipeline, parent, reading.ranges, self.log, recorded)
        ends = [parent.covered_until_ms]
        if reading.interval is not None and reading.ranges.covers:
            ends.append(reading.interval.end_ms)
        covered = max((end for end in ends if end is not None), default=None)
        # A run without an interval moves logical time only where no interval was ever covered.
        logical_ms = reading.logical_time_ms if covered is None and reading.interval is None else covered
        return found | plan_frontiers(pipeline, parent, logical_ms)

    def _compacted_sinks(
        self,
        fitting: Mapping[str, FittingSink],
        timeline: str,
        hide: Callable[[StateHandle, timedelta | None], StateHandle],
    ) -> tuple[dict[str, FittingSink], dict[str, str]]:
        """The same sinks with the compactions of their rows that the plan adopts, and the records of these by owner.

        Args:
            fitting: the sinks as the parent left them.
            timeline: the timeline of the plan.
            hide: hides the rows that have expired.
        """
        found, adopted = dict[str, FittingSink](), dict[str, str]()
        for uid, sink in fitting.items():
            handle, key = self._input_planner.adopt_rows(sink.old.path, timeline, sink.old.handle)
            found[uid] = replace(sink, old=replace(sink.old, handle=hide(handle, sink.keep_for)))
            adopted |= key
        return found, adopted

    def _hide_expired(self, slot: Slot, now_ms: int, handle: StateHandle, keep_for: timedelta | None) -> StateHandle:
        """The handle of a sink or of dead letters without the rows that have expired at a logical time."""
        if keep_for is None or not handle:
            return handle
        until_ms = now_ms - keep_for // _MS
        try:
            found = Timelines(self.objects).newest_until(slot.timeline, slot.sequence - 1, until_ms, handle.expired)
        except CorruptObjectError as error:
            _log.warning("rows that may have expired are kept: %s", error.what)
            return handle
        return replace(handle, expired=max(handle.expired, found))

    @property
    def _input_planner(self) -> InputPlanner:
        return InputPlanner(objects=self.objects, files_exist=self.files_exist)

    def _refuse_stillborn(self, head: Head) -> None:
        """Refuses a timeline whose parent was released, or revised by an erasure, before the genesis was written."""
        if isinstance(head.entry, Genesis):
            usable(Timelines(self.objects), Timelines(self.objects).checkpoint(head.entry.parent))
            refuse_stillborn(self.objects, head.entry)
        elif isinstance(head.entry, Checkpoint) and head.entry.plan.slot.sequence < head.sequence:
            # Later checkpoints were given up, and retention may have released this one in the meantime.
            usable(Timelines(self.objects), head.entry)

    @property
    def _freezer(self) -> Freezer:
        return Freezer(objects=self.objects, write_ids=self.write_ids, listener=self.listener)

    def _stopped(self, pipeline: Pipeline) -> Refused | None:
        record = Stops(self.objects).current()
        if record is None:
            return None
        return Refused(
            reason=FailureReason.STOPPED,
            message=f"the pipeline is stopped: {record.why}",
            next=f"tidemark resume {pipeline.name}, then run the command again.",
        )

    def _drained(self, pipeline: Pipeline, request: PlanRequest, head: Head) -> Refused | None:
        """Refuses a plan behind a checkpoint that drains; a repetition has nothing to repeat behind it."""
        plan = head.entry.plan if isinstance(head.entry, Checkpoint) else None
        if plan is None or not plan.drains or request.replay_to is not None:
            return None
        is_live = head.timeline == Timelines(self.objects).live()
        finish = f"tidemark stop {pipeline.name} --savepoint NAME --drain    (finishes a stop that died)"
        back = f"tidemark resume {pipeline.name} --force    (goes back to chk-{plan.parent}, sinks included)"
        return Refused(
            reason=FailureReason.STOPPED,
            message=f"the pipeline is drained: {plan.name} has closed all windows, so every record would be late",
            next=f"{back}, or {finish}." if is_live else f"tidemark timeline list {pipeline.name}",
        )

    def _limit(self, pipeline: Pipeline, request: PlanRequest, head: Head, free: NothingOpen) -> ReadLimit | None:
        """How much the next plan may read: half of it for each plan that was too much, until the backlog is read."""
        records = pipeline.max_records if request.max_records is None else request.max_records
        if records is not None and records < 1:
            raise UsageError(f"max_records={records}", next="give at least 1 record.")
        if records is None and pipeline.max_bytes is None:
            return None
        bound = Bound(
            records=records,
            size=pipeline.max_bytes,
            reduced_to=head.entry.plan.reduced_to or None if isinstance(head.entry, Checkpoint) else None,
            halvings=sum(record.failure.reason in _TOO_MUCH for record in free.aborted),
            record_bytes=1.0 if pipeline.max_bytes is None else self._mean_bytes(pipeline, head),
        )
        runs = Runs(objects=self.objects, clock=self.clock, write_ids=self.write_ids, request=request)
        return ReadLimit(bound=bound, runs=runs if request.run else None)

    def _mean_bytes(self, pipeline: Pipeline, head: Head) -> float:
        """Mean bytes of a record in the newest checkpoint that read some; at first, of some records in Kafka."""
        for found in islice(Timelines(self.objects).chain(head.timeline), _LOOK_BACK):
            if found.sealed.facts.records:
                return found.sealed.facts.bytes / found.sealed.facts.records
        return mean_bytes([source.topics for source in pipeline.sources.values()], self.log, pipeline.isolation)

    def _too_early(self, pipeline: Pipeline, request: PlanRequest, head: Head) -> Refused | None:
        pause_ms = int(pipeline.min_pause.total_seconds() * 1000)
        if not pause_ms or not isinstance(head.entry, Checkpoint):
            return None
        if request.continues and pipeline.is_bounded(request.max_records):
            return None  # the next checkpoint of a run
        # Manifests hold no publication time, so that all publishers write equal bytes; the time of the seal is used.
        sealed = self.objects.outcome(head.entry.plan.slot, head.entry.sealed.attempt)
        # If the clock was ahead when the checkpoint was sealed and is right by now, nothing has to wait longer.
        wait = 0 if sealed is None else min(pause_ms, sealed.at_ms + pause_ms - self.clock.now_ms())
        if wait <= 0:
            return None
        return Refused(
            reason=FailureReason.MIN_PAUSE,
            message=f"the minimum pause after {head.entry.plan.name} lasts another {wait} ms",
            next="run the command again later, or lower min_pause.",
            wait_ms=wait,
        )


def _without_records(found: PlannedRanges) -> PlannedRanges:
    """The ranges of a plan that reads nothing: all records stay in the log."""
    starts = {tp: r.start for tp, r in found.ranges.items()}
    left = {tp: r.end - r.start + found.pending.get(tp, 0) for tp, r in found.ranges.items()}
    return replace(
        found,
        ranges=OffsetRanges.between(starts, BarrierOffsets(starts)),
        pending={tp: count for tp, count in left.items() if count},
    )


def _interval(request: PlanRequest) -> Interval | None:
    if request.interval_end is None:
        return None
    end = to_ms(request.interval_end)
    return Interval(start_ms=end if request.interval_start is None else to_ms(request.interval_start), end_ms=end)
