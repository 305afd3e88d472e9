"""The input state of the next plan: the parent's handles, with the compactions that the plan can adopt."""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tidemark.coordinator.records.objects import Objects
from tidemark.coordinator.records.timelines import Head, is_void
from tidemark.declare.pipeline import Pipeline
from tidemark.errors import ConflictError, CorruptObjectError, IncompatibleStateError, StoreError
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.plan import Slot, dead_letters_path
from tidemark.model.checkpoint.row_tables import base_of
from tidemark.model.checkpoint.segments import OperatorState, Segment, StateHandle, is_base, owner_of
from tidemark.model.checkpoint.sinks import SinkTable
from tidemark.model.checkpoint.store_objects import Closing, CompactionRecord, Genesis
from tidemark.model.core.clocks import EventTimeClock
from tidemark.model.core.offsets import OffsetCoverage, TopicPartition
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.model.state.evolution import (
    NOTHING_REPLACED,
    Misfit,
    ReplacedStates,
    carried_lists,
    compare_schemas,
    evolve_schema,
    plain,
    shares_tables,
    with_stored_choices,
)


# The parent of a plan: the newest completed checkpoint of a timeline, or the genesis that began it.
@dataclass(frozen=True, slots=True, kw_only=True)
class Parent:
    """The state of a timeline that the next plan starts from. The default is a pipeline without checkpoints.

    Attributes:
        id: id of the parent checkpoint.
        ends: end offsets of its ranges, which are the starts of the next ones.
        topic_ids: Kafka's topic ids when it was read.
        sources: topics per input.
        isolation: isolation level of its read; None if unknown.
        handles: state per uid.
        dead_letters: dead-letter table per uid.
        schemas: stored schema per uid.
        tables: folder per uid, if the parent is on the same timeline.
        logical_time_ms: its logical time.
        watermark_ms: watermark after it.
        watermarks: the same per partition.
        clocks: the clocks after it.
        covered_until_ms: end of the newest interval that its timeline covers.
        broadcast_versions: version of the copied table, per broadcast state that copies one.
        broadcast_ids: Delta's id of the same tables.
        sinks: table of every sink, by uid of its operator.
        outboxes: outboxes of sinks that are no longer declared, by name; see `CheckpointPlan.outboxes`.
        operator_states: lists per uid of an operator that declared some.
        revision: revision of its manifest, or of the genesis.
        requests_seen: number of the newest request for a redrive that it has seen; 0 for a genesis.
        repeats_to: id of the checkpoint up to which its timeline still has to repeat recorded ones; 0 = none.
    """

    id: int | None = None
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    isolation: str | None = None
    handles: Mapping[str, StateHandle] = field(default_factory=dict)
    dead_letters: Mapping[str, StateHandle] = field(default_factory=dict)
    schemas: Mapping[str, OperatorSchema] = field(default_factory=dict)
    tables: Mapping[str, str] = field(default_factory=dict)
    logical_time_ms: int | None = None
    watermark_ms: int | None = None
    watermarks: Mapping[TopicPartition, int] = field(default_factory=dict)
    clocks: Mapping[str, EventTimeClock] = field(default_factory=dict)
    covered_until_ms: int | None = None
    broadcast_versions: Mapping[str, int] = field(default_factory=dict)
    broadcast_ids: Mapping[str, str] = field(default_factory=dict)
    sinks: Mapping[str, SinkTable] = field(default_factory=dict)
    outboxes: Mapping[str, SinkTable] = field(default_factory=dict)
    operator_states: Mapping[str, OperatorState] = field(default_factory=dict)
    revision: int = 0
    requests_seen: int = 0
    repeats_to: int = 0

    @classmethod
    def of(cls, head: Head) -> "Parent":
        """Returns the parent at the head of a timeline.

        Raises:
            ConflictError: the timeline was closed.
        """
        entry = head.entry
        if entry is None:
            return cls()
        if isinstance(entry, Closing):
            raise ConflictError(
                f"timeline {head.timeline} was closed"
                + (f" in favour of {entry.successor}" if entry.successor else ""),
                next="run the pipeline again: it continues with the live timeline.",
            )
        return cls._of_genesis(entry) if isinstance(entry, Genesis) else cls._of_checkpoint(entry)

    @classmethod
    def _of_checkpoint(cls, found: Checkpoint) -> "Parent":
        plan = found.plan
        return cls(
            id=plan.id,
            ends=plan.ranges.ends,
            topic_ids=plan.topic_ids,
            sources=plan.sources,
            isolation=plan.isolation,
            handles=found.handles,
            dead_letters={a.uid: a.dead_letters for a in found.sealed.acks},
            schemas=plan.schemas,
            tables=plan.tables,
            logical_time_ms=plan.logical_time_ms,
            watermark_ms=found.sealed.facts.watermark_ms,
            watermarks=found.sealed.facts.watermarks,
            clocks=found.sealed.facts.clocks,
            covered_until_ms=found.covered_until_ms,
            broadcast_versions=plan.broadcast_versions,
            broadcast_ids=plan.broadcast_ids,
            sinks=found.sinks,
            outboxes=plan.outboxes,
            operator_states=found.operator_states,
            revision=found.revision,
            requests_seen=plan.requests_seen,
            repeats_to=plan.repeats_to,
        )

    @classmethod
    def _of_genesis(cls, found: Genesis) -> "Parent":
        return cls(
            id=found.parent,
            ends=found.ranges.ends,
            topic_ids=found.topic_ids,
            sources=found.sources,
            isolation=found.isolation or None,
            handles=found.handles,
            dead_letters=found.dead_letters,
            schemas=found.schemas,
            logical_time_ms=found.logical_time_ms,
            watermark_ms=found.watermark_ms,
            watermarks=found.watermarks,
            clocks=found.clocks,
            covered_until_ms=found.covered_until_ms,
            broadcast_versions=found.broadcast_versions,
            broadcast_ids=found.broadcast_ids,
            sinks={uid: _with_coverage(table, found) for uid, table in found.sinks.items()},
            outboxes=found.outboxes,
            operator_states=found.operator_states,
            revision=found.revision,
            repeats_to=found.repeats_to,
        )


def _with_coverage(table: SinkTable, genesis: Genesis) -> SinkTable:
    """The sink table of a genesis. One of 0.1 covers all offsets up to its checkpoint, and `emitted_until`."""
    covered = table.coverage(genesis.topic_ids)
    if table.covered is None and not table.needs_delivery:
        covered |= OffsetCoverage.below(genesis.ranges.ends, genesis.topic_ids)
    return replace(table, covered=covered)


# The state that the next plan takes over from its parent: by uid, by field, or not at all.
#
# All misfits are reported at once, by uid and field, before a plan exists and long before Spark starts.
_ALLOW = "--allow-non-restored-state"


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedState:
    """The state that is taken over.

    Attributes:
        parent: the parent that has the state.
        declared: the declared schemas, by uid.
        origins: per uid, the uid of the same state in the parent; operators that start empty are omitted.
        left_behind: state that no operator takes over, by the parent's uid.
        operator_states: lists of every operator that declares any, with the parent's elements.
        replaced: operators whose state a transform writes, so it is empty here.
    """

    parent: Parent
    declared: Mapping[str, OperatorSchema]
    origins: Mapping[str, str]
    left_behind: Mapping[str, StateHandle]
    operator_states: Mapping[str, OperatorState]
    replaced: frozenset[str] = frozenset()

    def state(self, uid: str) -> StateHandle:
        """The state of an operator; empty if it starts empty."""
        kept = "" if uid in self.replaced else self.origins.get(uid, "")
        return self.parent.handles.get(kept, StateHandle())

    def dead_letters(self, uid: str) -> StateHandle:
        """The dead letters of an operator so far."""
        return self.parent.dead_letters.get(self.origins.get(uid, ""), StateHandle())

    def schema(self, uid: str, handle: StateHandle) -> OperatorSchema:
        """The stored schema of an operator, which knows how to read the tables of a handle."""
        origin = self.origins.get(uid)
        if origin is None or not handle:
            return plain(self.declared[uid])
        return evolve_schema(self.parent.schemas[origin], self.declared[uid], handle.folders)

    def folder(self, uid: str) -> str | None:
        """The folder of an operator's tables if new rows have the same columns; None = new tables."""
        origin = self.origins.get(uid)
        if uid in self.replaced or origin is None or not shares_tables(self.parent.schemas[origin], self.declared[uid]):
            return None
        return self.parent.tables.get(uid)


def carried_over(
    parent: Parent,
    declared: Mapping[str, OperatorSchema],
    lists: Mapping[str, OperatorState],
    *,
    allow_removed: bool,
    replaced: ReplacedStates = NOTHING_REPLACED,
) -> CarriedState:
    """Finds the state of every declared operator.

    Args:
        parent: the existing state.
        declared: schemas by uid; `was` gives the earlier uid of a renamed operator.
        lists: declared lists by uid, for operators that declare any.
        allow_removed: leave the state of operators that are no longer declared behind.
        replaced: state that a transform writes, so it is not compared; the operators that it reads may be undeclared.

    Raises:
        IncompatibleStateError: lists every uid and field that does not fit, with old, new and the remedy.
    """
    origins, misfits = _origins(parent, declared)
    stored = {uid: parent.schemas[origin] for uid, origin in origins.items()}
    declared = {uid: with_stored_choices(stored.get(uid), its, replaced) for uid, its in declared.items()}
    for uid, origin in origins.items():
        if parent.handles.get(origin) and uid not in replaced.uids:
            misfits += compare_schemas(stored[uid], declared[uid]).misfits
    operator_states = {}
    for uid, wanted in lists.items():
        there = parent.operator_states.get(origins.get(uid, ""), OperatorState())
        operator_states[uid], more = carried_lists(uid, there, wanted)
        misfits += more
    known = {*origins.values(), *replaced.read}
    removed = [uid for uid in parent.schemas if uid not in known and _has_state(parent, uid)]
    if not allow_removed:
        misfits += (_removed(uid) for uid in removed)
    if misfits:
        raise IncompatibleStateError(
            f"the pipeline does not fit its state: {'; '.join(map(str, misfits))}",
            safe="nothing was planned; every restore point is intact.",
            next="change the declaration as described for each; then run the pipeline again.",
        )
    left = {uid: parent.handles.get(uid, StateHandle()) for uid in removed}
    return CarriedState(
        parent=parent,
        declared=declared,
        origins=origins,
        left_behind=left,
        operator_states=operator_states,
        replaced=replaced.uids,
    )


def _has_state(parent: Parent, uid: str) -> bool:
    lists = parent.operator_states.get(uid, OperatorState())
    return bool(parent.handles.get(uid) or parent.dead_letters.get(uid) or any(x.elements for x in lists.lists))


def _origins(parent: Parent, declared: Mapping[str, OperatorSchema]) -> tuple[dict[str, str], list[Misfit]]:
    origins: dict[str, str] = {}
    misfits = []
    for uid, schema in declared.items():
        if uid in parent.schemas:
            origins[uid] = uid
        elif schema.was and parent.schemas:
            why = _no_rename(schema.was, parent, declared, origins)
            if why:
                misfits.append(Misfit(uid=uid, field="", what=why, remedy="correct was=, or omit it"))
            else:
                origins[uid] = schema.was
    return origins, misfits


def _no_rename(
    was: str, parent: Parent, declared: Mapping[str, OperatorSchema], origins: Mapping[str, str]
) -> str | None:
    if was not in parent.schemas:
        return f"was={was!r} names no operator with state; there are {', '.join(sorted(parent.schemas))}"
    if was in declared:
        return f"was={was!r} is declared too"
    return f"was={was!r} is given for two operators" if was in origins.values() else None


def _removed(uid: str) -> Misfit:
    return Misfit(
        uid=uid,
        field="",
        what="is no longer declared, but has state",
        remedy=f"declare it again, rename it with was={uid!r}, or leave its state behind with {_ALLOW}",
    )


_log = logging.getLogger("tidemark")

FilesExist = Callable[[StateHandle], bool]
"""Checks whether every file of a handle exists; answered by the tables, injected by the context."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedInputs:
    """Inputs per uid, in declaration order: state, dead letters, stored schema, adopted compaction, state left behind.

    `slot` is that of the plan. `kept` holds the folders of tables that continue, and None for operators that begin new
    tables. `operator_states` holds the lists of the operators that declare any.
    """

    slot: Slot
    handles: Mapping[str, StateHandle]
    dead_letters: Mapping[str, StateHandle]
    kept: Mapping[str, str | None]
    schemas: Mapping[str, OperatorSchema]
    adopted: Mapping[str, str]
    left_behind: Mapping[str, StateHandle]
    operator_states: Mapping[str, OperatorState]

    def tables(self, pipeline: str, timeline: str, checkpoint_id: int) -> dict[str, str]:
        """Folder per uid that the checkpoint's run is written to.

        New tables are numbered by the checkpoint that begins them; no two plans, abandoned or not, share a number.
        """
        new = f"{timeline}-{checkpoint_id}"
        return {uid: folder or f"{pipeline}/state/{uid}/{new}" for uid, folder in self.kept.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class InputPlanner:
    """Chooses the handles that a plan freezes."""

    objects: Objects
    files_exist: FilesExist

    def plan(
        self,
        pipeline: Pipeline,
        slot: Slot,
        parent: Parent,
        *,
        allow_removed: bool,
        replaced: ReplacedStates = NOTHING_REPLACED,
    ) -> PlannedInputs:
        """Plans the inputs of the next plan.

        Raises:
            IncompatibleStateError: the declaration does not fit the state; the message lists uids and fields.
        """
        schemas = pipeline.schemas()
        lists = pipeline.operator_states()
        carried = carried_over(parent, schemas, lists, allow_removed=allow_removed, replaced=replaced)
        handles, adopted, wholly = {}, dict[str, str](), dict[str, int]()
        for uid in schemas:
            handle = carried.state(uid)
            # The columns of a folder that neither the handle nor the parent names are unknown.
            readable = {*handle.folders, parent.tables.get(uid)}
            handles[uid], found = self._adopt_newest(uid, slot.timeline, handle, readable)
            if found is not None:
                adopted[uid], record = found
                wholly[uid] = record.input.through if record.deepest else 0
        letters = {}
        for uid in schemas:
            path = dead_letters_path(pipeline.name, uid, slot.timeline)
            letters[uid], key = self.adopt_rows(path, slot.timeline, carried.dead_letters(uid))
            adopted |= key
        return PlannedInputs(
            slot=slot,
            handles=handles,
            dead_letters=letters,
            kept={uid: carried.folder(uid) for uid in schemas},
            schemas={uid: _absorbed(carried.schema(uid, handles[uid]), wholly.get(uid, 0)) for uid in schemas},
            adopted=adopted,
            left_behind=carried.left_behind,
            operator_states=carried.operator_states,
        )

    def adopt_rows(self, path: str, timeline: str, handle: StateHandle) -> tuple[StateHandle, dict[str, str]]:
        """Adopts the newest compaction of a sink or of dead letters.

        Args:
            path: the table that the timeline appends to.
            timeline: the timeline of the plan.
            handle: the rows, as the parent left them.

        Returns:
            The handle to plan with, and the record that it uses by owner, if any.
        """
        if not handle:
            return handle, {}
        # A table that was begun with other columns has another path, so its compactions have another base.
        readable = {base_of(path), *(s.path for s in handle)}
        merged, found = self._adopt_newest(owner_of(path), timeline, handle, readable)
        return merged, {} if found is None else {owner_of(path): found[0]}

    def _adopt_newest(
        self, uid: str, timeline: str, handle: StateHandle, readable: Collection[str | None]
    ) -> tuple[StateHandle, tuple[str, CompactionRecord] | None]:
        for key, record in self._newest_first(uid, timeline, handle):
            merged = adopt(handle, record)
            if merged == handle:
                return handle, None
            known = all(_layout_of(segment) in readable for segment in record.output)
            if merged is None or not known or is_void(self.objects, record):
                continue
            if self._is_whole(record.output):
                return merged, (key, record)
        return handle, None

    def _is_whole(self, output: StateHandle) -> bool:
        """Whether all files of a result exist. False if a table is damaged or does not answer: nothing is adopted."""
        try:
            return self.files_exist(output)
        except StoreError as error:
            _log.warning("a compaction was not adopted: %s", error.what)
            return False

    def _newest_first(self, uid: str, timeline: str, handle: StateHandle) -> Sequence[tuple[str, CompactionRecord]]:
        """Results that may be adopted, newest first, from the checkpoint up to which a compaction is adopted already.

        Older ones are not read. A damaged record is skipped: the compaction is simply done again.
        """
        oldest = absorbed_through(handle)
        listed = [key for key in self.objects.list(f"compactions/{uid}/") if read_checkpoint(key, oldest) >= oldest]
        found = [(key, self._undamaged(key)) for key in listed]
        mine = [(key, r) for key, r in found if r is not None and r.timeline == timeline]
        return sorted(mine, key=lambda kr: (kr[1].input.through, kr[1].checkpoint, kr[0]), reverse=True)

    def _undamaged(self, key: str) -> CompactionRecord | None:
        try:
            return self.objects.read(CompactionRecord, key)
        except CorruptObjectError as error:
            _log.warning("a compaction was not adopted: %s", error.what)
            return None


def _layout_of(segment: Segment) -> str:
    """The folder of a segment of state, whose tables have the same columns; the table of a segment of rows."""
    folder = segment.path.rpartition("/")[0]
    return segment.path if "~" in owner_of(segment.path) else folder


def absorbed_through(handle: StateHandle) -> int:
    """The checkpoint up to which a compaction has absorbed a state; 0 if none has."""
    return next((segment.through for segment in handle if is_base(segment.path)), 0)


def read_checkpoint(key: str, default: int) -> int:
    """The checkpoint that a compaction has read, from the key of its record; `default` if the key does not say."""
    parts = key.rpartition("/")[2].split(".")
    return int(parts[-3]) if len(parts) > 3 and parts[-3].isdecimal() else default


def _absorbed(schema: OperatorSchema, through: int) -> OperatorSchema:
    """The schema without a patch that a compaction has turned into plain values, because it merged past the patch."""
    return replace(schema, patched=0) if 0 < schema.patched <= through else schema


def adopt(handle: StateHandle, record: CompactionRecord) -> StateHandle | None:
    """Replaces a compaction's input in a handle by its output; None if the input is not an exact prefix of the handle.

    A handle can be cut inside a segment only if checkpoints commit to its table, in which each run keeps its own
    checkpoint id, and only if the compaction read the same segment from the same lower bound.
    """
    if not handle.has_prefix(record.input) or record.output.through != record.input.through:
        return None
    cut = record.input.through
    rest: list[Segment] = []
    for segment in handle:
        if segment.through <= cut:
            continue
        remaining = segment if segment.after >= cut else _behind(segment, cut, record.input)
        if remaining is None:
            return None
        rest.append(remaining)
    return handle.with_segments((*record.output.segments, *rest))


def _behind(segment: Segment, cut: int, read: StateHandle) -> Segment | None:
    part = read.segment_of(segment.path)
    if is_base(segment.path) or part is None or (part.after, part.through) != (segment.after, cut):
        return None
    return replace(
        segment,
        after=cut,
        rows=segment.rows - part.rows,
        bytes=segment.bytes - part.bytes,
        files=segment.files - part.files,
    )
