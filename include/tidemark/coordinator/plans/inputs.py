"""The input state of the next plan: the parent's handles, with the compactions that the plan can adopt."""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from tidemark.coordinator.plans.parents import Parent
from tidemark.coordinator.plans.state_migration import carried_over
from tidemark.coordinator.records.erasure_records import is_void
from tidemark.coordinator.records.objects import Objects
from tidemark.declare.pipeline import Pipeline
from tidemark.errors import CorruptObjectError, StoreError
from tidemark.model.checkpoint.operator_lists import OperatorState
from tidemark.model.checkpoint.plan import Slot
from tidemark.model.checkpoint.segments import Segment, StateHandle
from tidemark.model.checkpoint.store_objects import CompactionRecord
from tidemark.model.schema.operator_schema import OperatorSchema

_log = logging.getLogger("tidemark")

FilesExist = Callable[[StateHandle], bool]
"""Checks whether every file of a handle exists; answered by the tables, injected by the context."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedInputs:
    """Inputs per uid, in declaration order: state, dead letters, stored schema, adopted compaction, state left behind.

    `kept` holds the folders of tables that continue, and None for operators that begin new tables. `operator_states`
    holds the lists of the operators that declare any.
    """

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

    def plan(self, pipeline: Pipeline, slot: Slot, parent: Parent, *, allow_removed: bool) -> PlannedInputs:
        """Plans the inputs of the next plan.

        Raises:
            IncompatibleStateError: the declaration does not fit the state; the message lists uids and fields.
        """
        schemas = pipeline.schemas()
        carried = carried_over(parent, schemas, pipeline.operator_states(), allow_removed=allow_removed)
        handles, adopted, wholly = {}, dict[str, str](), dict[str, int]()
        for uid in schemas:
            handle = carried.state(uid)
            readable = {*handle.folders, parent.tables.get(uid)}
            handles[uid], found = self._adopt_newest(uid, slot.timeline, handle, readable)
            if found is not None:
                adopted[uid], record = found
                wholly[uid] = record.input.through if record.deepest else 0
        return PlannedInputs(
            handles=handles,
            dead_letters={uid: carried.dead_letters(uid) for uid in schemas},
            kept={uid: carried.folder(uid) for uid in schemas},
            schemas={uid: _absorbed(carried.schema(uid, handles[uid]), wholly.get(uid, 0)) for uid in schemas},
            adopted=adopted,
            left_behind=carried.left_behind,
            operator_states=carried.operator_states,
        )

    def _adopt_newest(
        self, uid: str, timeline: str, handle: StateHandle, readable: Collection[str | None]
    ) -> tuple[StateHandle, tuple[str, CompactionRecord] | None]:
        for key, record in self._newest_first(uid, timeline, handle):
            merged = adopt(handle, record)
            if merged == handle:
                return handle, None
            # The columns of a folder that neither the handle nor the parent names are unknown.
            known = all(folder in readable for folder in record.output.folders)
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


def absorbed_through(handle: StateHandle) -> int:
    """The checkpoint up to which a compaction has absorbed a state; 0 if none has."""
    return next((segment.through for segment in handle if segment.path.endswith("/base")), 0)


def read_checkpoint(key: str, default: int) -> int:
    """The checkpoint that a compaction has read, from the key of its record; `default` if the key does not say."""
    parts = key.rpartition("/")[2].split(".")
    return int(parts[-3]) if len(parts) > 3 and parts[-3].isdecimal() else default


def _absorbed(schema: OperatorSchema, through: int) -> OperatorSchema:
    """The schema without a patch that a compaction has turned into plain values, because it merged past the patch."""
    return replace(schema, patched=0) if 0 < schema.patched <= through else schema


def adopt(handle: StateHandle, record: CompactionRecord) -> StateHandle | None:
    """Replaces a compaction's input in a handle by its output; None if the input is not an exact prefix of the handle.

    A handle can be cut inside a segment only if the segment is of a `runs` table, in which each run keeps its own
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
    return StateHandle((*record.output.segments, *rest))


def _behind(segment: Segment, cut: int, read: StateHandle) -> Segment | None:
    part = read.segment_of(segment.path)
    if not segment.path.endswith("/runs") or part is None or (part.after, part.through) != (segment.after, cut):
        return None
    return replace(
        segment,
        after=cut,
        rows=segment.rows - part.rows,
        bytes=segment.bytes - part.bytes,
        files=segment.files - part.files,
    )
