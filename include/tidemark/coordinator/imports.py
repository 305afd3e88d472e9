"""An imported state as the first checkpoint of a timeline: one that reads nothing and names what was brought in.

Its plan has the imported segments as input and ranges that end where they begin, so that it is an idle checkpoint:
whoever executes it comes to the same manifest, and a plan that a killed import left open is completed by the next run
(I10). From there on it is a checkpoint like any other: to be read, pinned, restored, forked.
"""

import re
from dataclasses import dataclass

from tidemark.coordinator.attempts import OwnedAttempt
from tidemark.coordinator.coordinator import CheckpointCoordinator
from tidemark.coordinator.inputs import InputPlanner, PlannedInputs
from tidemark.coordinator.parents import Parent
from tidemark.coordinator.sinks import planned_sinks, timeline_sinks
from tidemark.coordinator.states import Completed, NothingOpen, PlanState
from tidemark.coordinator.timelines import Head
from tidemark.errors import ConflictError, NameRefusedError
from tidemark.model import keys
from tidemark.model.canonical import sha256_of
from tidemark.model.checkpoint import Ack, BatchFacts, Checkpoint, PendingCheckpoint, Sealed, Verdict
from tidemark.model.exports import Export, ExportedState
from tidemark.model.names import checked_name
from tidemark.model.offsets import Barrier, OffsetRanges
from tidemark.model.operator_state import OperatorState
from tidemark.model.plan import CheckpointPlan, Interval, Slot
from tidemark.model.queries import names_of, stored_texts
from tidemark.model.records import Closing, Genesis, IdRecord
from tidemark.model.segments import Segment, StateHandle
from tidemark.pipeline import Pipeline
from tidemark.ports import PutOutcome

_NUMBERED = re.compile(r"t\d+", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Importing:
    """What is to come in, and where.

    Attributes:
        export: what.
        pipeline: the declaration that goes on from it.
        timeline: which it begins.
        allow_non_restored_state: leave the state of operators out that the pipeline does not declare.
    """

    export: Export
    pipeline: Pipeline
    timeline: str
    allow_non_restored_state: bool = False

    @property
    def origin(self) -> str:
        """By which an import knows a plan of its own."""
        return f"import {sha256_of(self.export.encoded())}"

    def folder(self, uid: str, number: int) -> str:
        """The folder of the tables that an operator's rows are brought to, relative to the warehouse."""
        return f"{self.pipeline.name}/state/{uid}/{self.timeline}-{number}"

    def handles(self, number: int) -> dict[str, StateHandle]:
        """Per uid the state as it will lie there: the first version of a table of its own; empty without rows."""
        return {uid: self._brought(uid, state, number) for uid, state in self.export.states.items()}

    @property
    def least(self) -> int:
        """The least id that the tables may be named by: rows name checkpoints up to that of the export."""
        return max(1, self.export.checkpoint)

    def _brought(self, uid: str, state: ExportedState, number: int) -> StateHandle:
        if not state.rows:
            return StateHandle()
        segment = Segment(
            after=0,
            through=number,
            path=f"{self.folder(uid, number)}/base",
            version=0,
            rows=state.rows,
            bytes=sum(f.bytes for f in state.stored),
            files=len(state.stored),
        )
        return StateHandle((segment,))

    def parent(self, number: int) -> Parent:
        """What the first plan builds on."""
        e = self.export
        return Parent(
            ends=e.ranges.ends,
            topic_ids=e.topic_ids,
            sources=e.sources,
            isolation=e.isolation,
            handles=self.handles(number),
            dead_letters=dict.fromkeys(e.states, StateHandle()),
            schemas={uid: state.schema for uid, state in e.states.items()},
            tables={uid: self.folder(uid, number) for uid in e.states},
            logical_time_ms=e.logical_time_ms,
            watermark_ms=e.watermark_ms,
            watermarks=e.watermarks,
            operator_states=e.operator_states,
        )


@dataclass(frozen=True, kw_only=True)
class Importer:
    """Begins timelines with imported states.

    Attributes:
        coordinator: of the pipeline.
    """

    coordinator: CheckpointCoordinator

    def refuse_taken(self, wanted: Importing) -> Slot:
        """The slot that the first plan takes.

        Raises:
            ConflictError: the timeline has begun, or another plan of its first slot is open.
            NameRefusedError: a timeline of this name is not begun by an import.
        """
        standing = self._standing(wanted)
        if not isinstance(standing, NothingOpen):
            raise _has_begun(wanted)
        return standing.slot

    def left_over(self, wanted: Importing) -> CheckpointPlan | None:
        """The plan of an earlier call for the same export, complete or not.

        Raises:
            ConflictError, NameRefusedError: as `refuse_taken`.
        """
        standing = self._standing(wanted)
        if isinstance(standing, NothingOpen):
            return None
        plan = standing.checkpoint.plan if isinstance(standing, Completed) else standing.plan
        return plan if plan.origin == wanted.origin else None

    def _standing(self, wanted: Importing) -> NothingOpen | PlanState:
        timeline = checked_name("timeline", wanted.timeline)
        if timeline != keys.FIRST_TIMELINE and _NUMBERED.fullmatch(timeline):
            raise NameRefusedError(f"timeline name refused: {timeline!r}", next="t<n> are names of restores.")
        if isinstance(self.coordinator.objects.slot(timeline, 1), Genesis | Closing):
            raise _has_begun(wanted)
        return self.coordinator.standing(Head(timeline=timeline, sequence=0, entry=None))

    def take_id(self, slot: Slot, least: int) -> int:
        """Allocates a checkpoint id, at least `least`: rows keep the ids of the checkpoints that changed them."""
        objects = self.coordinator.objects
        taken = (int(k.rpartition("/")[2].removesuffix(".json")) for k in objects.list("ids/"))
        number = max(least, max(taken, default=0) + 1)
        while True:
            record = IdRecord(id=number, slot=slot, write_id=self.coordinator.write_ids())
            if objects.put(keys.id_key(number), record) is PutOutcome.WON:
                return number
            number += 1

    def inputs(self, wanted: Importing, slot: Slot, number: int) -> PlannedInputs:
        """What the declaration takes over.

        Raises:
            IncompatibleStateError: it does not fit; the message names every uid and field.
        """
        planner = InputPlanner(objects=self.coordinator.objects, files_exist=lambda handle: True)
        allowed = wanted.allow_non_restored_state
        return planner.plan(wanted.pipeline, slot, wanted.parent(number), allow_removed=allowed)

    def plan(self, wanted: Importing, slot: Slot, brought: int) -> CheckpointPlan:
        """Freezes and puts the first plan of the timeline.

        Args:
            wanted: what comes in.
            slot: the free one.
            brought: the id that the tables are named by.

        Raises:
            ConflictError: somebody else's plan came first.
            IncompatibleStateError, NotFoundError, BrokerError: see `inputs` and `coordinator.sinks`.
        """
        c = self.coordinator
        inputs = self.inputs(wanted, slot, brought)
        draft = self._draft(wanted, slot, inputs, self.take_id(slot, brought + 1))
        for schema in draft.schemas.values():
            for text in stored_texts(schema).values():
                c.objects.put_query(text)
        c.crash("plan", "before")
        won = c.objects.put(keys.plan_key(slot), draft) is PutOutcome.WON
        c.crash("plan", "after")
        if not won:
            raise ConflictError(
                f"{wanted.pipeline.name}: another plan took the first slot of timeline {slot.timeline}",
                safe="nothing names what was brought in.",
                next="let that run end, then import under another name or with --timeline NAME.",
            )
        return draft

    def complete(self, plan: CheckpointPlan) -> Checkpoint:
        """Seals and publishes the plan; finishes what an earlier call left.

        Raises:
            ConflictError: it was aborted.
        """
        owned = self.coordinator.begin(plan)
        if isinstance(owned, OwnedAttempt):
            owned.seal(_sealed(plan, owned.number))
        done = self.coordinator.complete(plan)
        if not isinstance(done, Completed):
            raise ConflictError(
                f"{plan.name} was aborted before it was complete", safe="nothing names what was brought in.",
                next=f"import again, before anything runs {plan.pipeline}.",
            )  # fmt: skip
        return done.checkpoint

    def _draft(self, wanted: Importing, slot: Slot, inputs: PlannedInputs, number: int) -> CheckpointPlan:
        c, e, pipeline = self.coordinator, wanted.export, wanted.pipeline
        sinks = timeline_sinks(pipeline, slot.timeline, Parent(), c.log, c.timelines.live)
        covered = e.covered_until_ms
        copied = [uid for uid in pipeline.tables if uid in e.broadcast_versions and uid in e.states]
        nothing = OffsetRanges.between(e.ranges.ends, Barrier(e.ranges.ends))
        return CheckpointPlan(
            pipeline=pipeline.name,
            id=number,
            slot=slot,
            parent=None,
            ranges=nothing,
            topic_ids=e.topic_ids,
            sources=e.sources,
            handles=inputs.handles,
            dead_letters=inputs.dead_letters,
            sinks=planned_sinks(sinks, number, nothing),
            tables=inputs.tables(pipeline.name, slot.timeline, number),
            schemas=inputs.schemas,
            adopted={},
            operator_states=inputs.operator_states,
            logical_time_ms=e.logical_time_ms,
            watermark_ms=e.watermark_ms,
            watermarks=e.watermarks,
            broadcast_versions={uid: e.broadcast_versions[uid] for uid in copied},
            broadcast_ids={uid: e.broadcast_ids[uid] for uid in copied},
            interval=None if covered is None else Interval(start_ms=covered, end_ms=covered),
            covers=True,
            isolation=e.isolation,
            fingerprint=pipeline.fingerprint,
            losses=(),
            origin=wanted.origin,
            planned_at_ms=c.clock.now_ms(),
            write_id=c.write_ids(),
            queries={uid: names_of(stored_texts(schema)) for uid, schema in inputs.schemas.items()},
        )


def _has_begun(wanted: Importing) -> ConflictError:
    return ConflictError(
        f"{wanted.pipeline.name}: timeline {wanted.timeline} has begun",
        safe="it goes on as it is; nothing was written.",
        next="import under the name of another pipeline, or beside the live timeline with --timeline NAME.",
    )


def _sealed(plan: CheckpointPlan, attempt: int) -> Sealed:
    """What an attempt comes to that reads nothing."""
    pending = PendingCheckpoint(plan)
    for uid, handle in plan.handles.items():
        sink = plan.sinks.get(uid)
        pending.acknowledge(
            Ack(
                uid=uid,
                handle=handle,
                dead_letters=plan.dead_letters[uid],
                commits=(),
                read=0,
                applied=0,
                dead_lettered=0,
                keys=0,
                run_bytes=0,
                timings_ms={},
                sink=StateHandle() if sink is None else sink.handle,
                operator_state=plan.operator_states.get(uid, OperatorState()),
            )
        )
    facts = BatchFacts.after(plan, records=0, size=0, seen={})
    return pending.sealed(attempt=attempt, facts=facts, verdict=Verdict(), timings_ms={})
