"""Makes a savepoint with other state: a fork whose first checkpoint reads nothing and names segments that were written.

A patch adds a segment to a state; a transform replaces states as a whole (ADR 0076). The order is the same: the fork's
genesis, which pins the source; the id; per operator the rows, their commit to a `base` table of the fork's own, and a
record of it; then the plan, the manifest, the pin. After a crash, a repetition recognizes the genesis, the plan and the
pin as its own, and writes the rows again; no object names the earlier ones. The source stays unchanged.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.checkpoints.idle import completed_idle
from tidemark.coordinator.checkpoints.jobs import open_job
from tidemark.coordinator.plans.inputs import InputPlanner, PlannedInputs
from tidemark.coordinator.plans.restore_point import RestorePoint
from tidemark.coordinator.records.states import Completed, NothingOpen
from tidemark.coordinator.records.timelines import Freezer, Head
from tidemark.coordinator.recovery.idle_plans import Idle, parent_of
from tidemark.coordinator.recovery.restore import Recovery
from tidemark.coordinator.recovery.savepoints import Savepoints
from tidemark.coordinator.recovery.segment_importer import SegmentImport, SegmentImporter
from tidemark.declare.pipeline import Pipeline
from tidemark.errors import ConflictError
from tidemark.model.checkpoint.manifest import Checkpoint, WrittenRun
from tidemark.model.checkpoint.plan import CheckpointPlan, Slot
from tidemark.model.checkpoint.segments import Segment, StateHandle
from tidemark.model.checkpoint.store_objects import Genesis
from tidemark.model.core.names import checked_timeline
from tidemark.model.retention.savepoint import SavepointRecord, SavepointRequest
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.model.state.compaction import DEEPEST
from tidemark.ports import PutOutcome, StateTables

Write = Callable[[str, str, int], WrittenRun]
"""Writes an operator's rows, given its uid, a folder relative to the warehouse, and the id that the rows name."""
_LEVEL = 1
"""The level of a patch, which lies above the state that it corrects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transforming:
    """The source of a transform or of a patch, and its target.

    Attributes:
        restore_point: the checkpoint to begin with. A transform names the states there that it replaces.
        pipeline: the current declaration.
        timeline: name of the fork.
        savepoint: the new savepoint; its origin distinguishes this call from every other one.
        uids: operators that get rows.
    """

    restore_point: RestorePoint
    pipeline: Pipeline
    timeline: str
    savepoint: SavepointRequest
    uids: tuple[str, ...]

    @property
    def origin(self) -> str:
        """Lets a repetition recognize its own objects."""
        return self.savepoint.origin

    @property
    def kind(self) -> Literal["patch", "transform"]:
        """Names the job and its steps."""
        return "transform" if self.restore_point.replaced.uids else "patch"

    def replaces(self, uid: str) -> bool:
        """Whether the rows of an operator are all of its state."""
        return uid in self.restore_point.replaced.uids


@dataclass(frozen=True, kw_only=True)
class Transformer:
    """Makes savepoints with other state.

    Attributes:
        coordinator: of the pipeline; its listener is also called at the steps of `SegmentImporter`, of kind `patch` or
            `transform`.
        tables: commits to tables.
        write: writes rows.
    """

    coordinator: CheckpointCoordinator
    tables: StateTables
    write: Write

    def transform(self, wanted: Transforming) -> tuple[Checkpoint, SavepointRecord]:
        """Makes the savepoint; a repetition finishes what an earlier call left, or finds that it is done.

        Raises:
            ConflictError: the savepoint's name or the timeline is taken, or the source is about to be deleted.
            NameRefusedError: a timeline cannot have this name.
            IncompatibleStateError, CorruptObjectError: see `Recovery.genesis`.
            TidemarkError: as the steps raise.
        """
        refuse_taken(self.coordinator, wanted)
        recovery = Recovery(coordinator=self.coordinator, pipeline=wanted.pipeline)
        genesis = recovery.fork(wanted.restore_point, wanted.timeline, wanted.origin).genesis
        found = self._standing(wanted, genesis)
        done = self._begun(wanted, genesis, found) if isinstance(found, Slot) else self._complete(wanted, found)
        request = replace(wanted.savepoint, checkpoint=done.id)
        return done, Savepoints(self.coordinator).create(request)

    def inputs(self, wanted: Transforming, slot: Slot, genesis: Genesis) -> PlannedInputs:
        """Plans the state that the declaration takes over from the source.

        Raises:
            IncompatibleStateError: the declaration does not fit; the message lists every uid and field.
        """
        planner = InputPlanner(objects=self.coordinator.objects, files_exist=self.coordinator.files_exist)
        replaced = wanted.restore_point.replaced
        return planner.plan(wanted.pipeline, slot, parent_of(genesis), allow_removed=False, replaced=replaced)

    def _standing(self, wanted: Transforming, genesis: Genesis) -> Slot | CheckpointPlan:
        """The free slot after the genesis, or the plan that an earlier call has put there."""
        head = Head(timeline=genesis.timeline, sequence=genesis.sequence, entry=genesis)
        standing = self.coordinator.next_plan(head)
        if isinstance(standing, NothingOpen):
            return standing.slot
        plan = standing.checkpoint.plan if isinstance(standing, Completed) else standing.plan
        if plan.origin != wanted.origin:
            what = f"timeline {genesis.timeline} has continued without the {wanted.kind}"
            raise _taken(wanted, what, f"{wanted.kind} under another name.")
        return plan

    def _begun(self, wanted: Transforming, genesis: Genesis, slot: Slot) -> Checkpoint:
        c = self.coordinator
        inputs, number = self.inputs(wanted, slot, genesis), self._freezer.take_id(slot, genesis.parent + 1)
        with open_job(c, wanted.kind, number) as job:
            imported = {uid: self._import_segment(wanted, inputs, uid, number, job) for uid in wanted.uids}
            named = _with(wanted, inputs, imported, number)
            idle = Idle(pipeline=wanted.pipeline, slot=slot, of=genesis, inputs=named, origin=wanted.origin)
            plan = idle.plan(c, number)
            if self._freezer.freeze(plan) is PutOutcome.LOST:
                what = f"another plan took the first slot of timeline {slot.timeline}"
                raise _taken(wanted, what, f"{wanted.kind} again.")
            return self._complete(wanted, plan)

    def _import_segment(self, wanted: Transforming, inputs: PlannedInputs, uid: str, number: int, job: str) -> Segment:
        folders = inputs.tables(wanted.pipeline.name, wanted.timeline, number)
        imported = SegmentImport(
            kind=wanted.kind,
            pipeline=wanted.pipeline.name,
            timeline=wanted.timeline,
            uid=uid,
            number=number,
            job=job,
            folder=folders[uid],
            schema=inputs.schemas[uid],
            level=DEEPEST if wanted.replaces(uid) else _LEVEL,
            after=inputs.handles[uid].through,
        )
        importer = SegmentImporter(coordinator=self.coordinator, tables=self.tables)
        return importer.import_segment(imported, lambda folder: self.write(uid, folder, number))

    def _complete(self, wanted: Transforming, plan: CheckpointPlan) -> Checkpoint:
        done = completed_idle(self.coordinator, plan)
        if done is None:
            what = f"{plan.name} was aborted before it was complete"
            raise _taken(wanted, what, f"repeat the {wanted.kind}: it starts again.")
        return done

    @property
    def _freezer(self) -> Freezer:
        c = self.coordinator
        return Freezer(objects=c.objects, write_ids=c.write_ids, listener=c.listener)


def refuse_taken(c: CheckpointCoordinator, wanted: Transforming) -> None:
    """Refuses names that are taken, unless an earlier call with the same origin took them.

    Raises:
        ConflictError, NameRefusedError: as in `Transformer.transform`.
    """
    name = wanted.savepoint.name
    pinned, begun = Savepoints(c).find(name), c.objects.slot(checked_timeline(wanted.timeline), 1)
    if pinned is not None and (pinned.disposed or pinned.origin != wanted.origin):
        options = "--as NAME" if wanted.kind == "patch" else "--fork NAME, or --as NAME for the savepoint alone"
        raise _taken(wanted, f"savepoint {name} exists already, or existed", f"use another name: {options}.")
    if begun is not None and not (isinstance(begun, Genesis) and begun.request == wanted.origin):
        option = "--timeline" if wanted.kind == "patch" else "--fork"
        raise _taken(wanted, f"timeline {wanted.timeline} exists already", f"use another name: {option} NAME.")


def mark_patched(schema: OperatorSchema, number: int) -> OperatorSchema:
    """The stored schema of a state that a checkpoint patches: only readers of a fold must be informed."""
    return replace(schema, patched=number) if schema.kind == "fold" else schema


def _with(wanted: Transforming, inputs: PlannedInputs, imported: Mapping[str, Segment], number: int) -> PlannedInputs:
    handles = {
        uid: StateHandle((*handle, imported[uid])) if uid in imported else handle
        for uid, handle in inputs.handles.items()
    }
    marked = {uid for uid in imported if not wanted.replaces(uid)}
    schemas = {uid: mark_patched(s, number) if uid in marked else s for uid, s in inputs.schemas.items()}
    return replace(inputs, handles=handles, schemas=schemas)


def _taken(wanted: Transforming, what: str, then: str) -> ConflictError:
    return ConflictError(what, safe=f"the source of the {wanted.kind} is unchanged.", next=then)
