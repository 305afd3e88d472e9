"""Imports a state as the first checkpoint of a timeline, which reads nothing and names the imported rows.

Its plan has the imported segments as input and ranges that end where they begin, so it is an idle checkpoint: every
process that executes it writes the same manifest, and the next run completes a plan that a killed import left open.
From then on it is a checkpoint like any other: you can read, pin, restore and fork it.
"""

from dataclasses import dataclass

from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.checkpoints.idle import completed_idle
from tidemark.coordinator.plans.inputs import InputPlanner, Parent, PlannedInputs
from tidemark.coordinator.records.states import Completed, NothingOpen, PlanState
from tidemark.coordinator.records.timelines import Freezer, Head
from tidemark.coordinator.recovery.idle_plans import Idle
from tidemark.coordinator.recovery.segment_importer import SegmentImport
from tidemark.declare.pipeline import Pipeline
from tidemark.errors import ConflictError
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.plan import CheckpointPlan, Slot
from tidemark.model.checkpoint.segments import Segment, StateHandle
from tidemark.model.checkpoint.store_objects import Closing, Genesis
from tidemark.model.core.canonical import sha256_of
from tidemark.model.core.names import checked_timeline
from tidemark.model.retention.export_manifest import Export, ExportedState
from tidemark.model.state.compaction import DEEPEST
from tidemark.ports import PutOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Importing:
    """The export to import, and its target.

    Attributes:
        export: the export.
        pipeline: the declaration that continues from it.
        timeline: the timeline that it begins.
        allow_non_restored_state: omit the state of operators that the pipeline does not declare.
    """

    export: Export
    pipeline: Pipeline
    timeline: str
    allow_non_restored_state: bool = False

    @property
    def origin(self) -> str:
        """Lets an import recognize its own plan."""
        return f"import {sha256_of(self.export.encode())}"

    def folder(self, uid: str, number: int) -> str:
        """The folder for an operator's imported tables, relative to the warehouse."""
        return f"{self.pipeline.name}/state/{uid}/{self.timeline}-{number}"

    def handles(self, number: int) -> dict[str, StateHandle]:
        """The imported state per uid: the first version of its own table; empty if there are no rows."""
        return {uid: self._imported_state(uid, state, number) for uid, state in self.export.states.items()}

    def segment_import(self, uid: str, number: int, job: str) -> SegmentImport:
        """An operator's rows and the folder that they are imported to."""
        return SegmentImport(
            kind="import",
            pipeline=self.pipeline.name,
            timeline=self.timeline,
            uid=uid,
            number=number,
            job=job,
            folder=self.folder(uid, number),
            schema=self.export.states[uid].schema,
            level=DEEPEST,
            after=0,
        )

    @property
    def least(self) -> int:
        """The least id that the tables may be named by: rows name checkpoints up to that of the export."""
        return max(1, self.export.checkpoint)

    def _imported_state(self, uid: str, state: ExportedState, number: int) -> StateHandle:
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
        """The parent of the first plan."""
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
            clocks=e.clocks,
            covered_until_ms=e.covered_until_ms,
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
        """Returns the slot of the first plan; refuses a timeline that is taken.

        Raises:
            ConflictError: the timeline has begun, or its first slot has another open plan.
            NameRefusedError: an import cannot begin a timeline of this name.
        """
        standing = self._state_of_first_slot(wanted)
        if not isinstance(standing, NothingOpen):
            raise _has_begun(wanted)
        return standing.slot

    def left_over(self, wanted: Importing) -> CheckpointPlan | None:
        """Returns the plan of an earlier call for the same export, complete or not.

        Raises:
            ConflictError: as in `refuse_taken`.
        """
        standing = self._state_of_first_slot(wanted)
        if isinstance(standing, NothingOpen):
            return None
        plan = standing.checkpoint.plan if isinstance(standing, Completed) else standing.plan
        return plan if plan.origin == wanted.origin else None

    def _state_of_first_slot(self, wanted: Importing) -> NothingOpen | PlanState:
        timeline = wanted.timeline
        if timeline != keys.FIRST_TIMELINE:
            checked_timeline(timeline)
        if isinstance(self.coordinator.objects.slot(timeline, 1), Genesis | Closing):
            raise _has_begun(wanted)
        return self.coordinator.next_plan(Head(timeline=timeline, sequence=0, entry=None))

    def take_id(self, slot: Slot, least: int) -> int:
        """Allocates a checkpoint id of at least `least`: rows keep the ids of the checkpoints that changed them."""
        return self._freezer.take_id(slot, least)

    @property
    def _freezer(self) -> Freezer:
        c = self.coordinator
        return Freezer(objects=c.objects, write_ids=c.write_ids, listener=c.listener)

    def inputs(self, wanted: Importing, slot: Slot, number: int) -> PlannedInputs:
        """Plans the state that the declaration takes over.

        Raises:
            IncompatibleStateError: the declaration does not fit; the message lists every uid and field.
        """
        planner = InputPlanner(objects=self.coordinator.objects, files_exist=lambda handle: True)
        allowed = wanted.allow_non_restored_state
        return planner.plan(wanted.pipeline, slot, wanted.parent(number), allow_removed=allowed)

    def plan(self, wanted: Importing, slot: Slot, table_id: int) -> CheckpointPlan:
        """Freezes and puts the first plan of the timeline.

        Args:
            wanted: the export and its target.
            slot: the free slot.
            table_id: the id that the tables are named by.

        Raises:
            ConflictError: another process's plan came first.
            IncompatibleStateError, NotFoundError, BrokerError: see `inputs` and `coordinator.sinks`.
        """
        inputs = self.inputs(wanted, slot, table_id)
        idle = Idle(pipeline=wanted.pipeline, slot=slot, of=wanted.export, inputs=inputs, origin=wanted.origin)
        draft = idle.plan(self.coordinator, self.take_id(slot, table_id + 1))
        if self._freezer.freeze(draft) is PutOutcome.LOST:
            raise ConflictError(
                f"{wanted.pipeline.name}: another plan took the first slot of timeline {slot.timeline}",
                safe="no checkpoint names the imported rows.",
                next="wait for that run to end, then import under another name or with --timeline NAME.",
            )
        return draft

    def complete(self, plan: CheckpointPlan) -> Checkpoint:
        """Seals and publishes the plan; finishes what an earlier call left.

        Raises:
            ConflictError: the plan was aborted.
        """
        done = completed_idle(self.coordinator, plan)
        if done is None:
            raise ConflictError(
                f"{plan.name} was aborted before it was complete", safe="no checkpoint names the imported rows.",
                next=f"import again, before anything runs {plan.pipeline}.",
            )  # fmt: skip
        return done


def _has_begun(wanted: Importing) -> ConflictError:
    return ConflictError(
        f"{wanted.pipeline.name}: timeline {wanted.timeline} has begun",
        safe="it continues unchanged; nothing was written.",
        next="import under the name of another pipeline, or next to the live timeline with --timeline NAME.",
    )
