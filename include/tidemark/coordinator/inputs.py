"""The input state of the next plan: the parent's handles, with compactions that may be adopted (E16, design 5)."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from tidemark.coordinator.objects import Objects
from tidemark.coordinator.parents import Parent
from tidemark.errors import ConflictError
from tidemark.model.plan import Slot
from tidemark.model.records import CompactionRecord
from tidemark.model.schema import OperatorSchema
from tidemark.model.segments import Segment, StateHandle
from tidemark.pipeline import Pipeline

FilesExist = Callable[[StateHandle], bool]
"""Whether every file of a handle is there; answered by the tables, injected by the wiring."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedInputs:
    """Per uid, in declaration order: state, dead letters, folder, stored schema, adopted compaction."""

    handles: Mapping[str, StateHandle]
    dead_letters: Mapping[str, StateHandle]
    tables: Mapping[str, str]
    schemas: Mapping[str, OperatorSchema]
    adopted: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class InputPlanner:
    """Chooses the handles that a plan freezes."""

    objects: Objects
    files_exist: FilesExist

    def plan(self, pipeline: Pipeline, slot: Slot, parent: Parent, *, allow_removed: bool) -> PlannedInputs:
        """The inputs of the next plan.

        Raises:
            ConflictError: the declaration does not fit the state; the message names uids and fields.
        """
        schemas = pipeline.schemas()
        refuse_incompatible(parent, schemas, allow_removed=allow_removed)
        handles, adopted = {}, {}
        for uid in schemas:
            handles[uid], key = self._adopted(uid, slot.timeline, parent.handles.get(uid, StateHandle()))
            if key is not None:
                adopted[uid] = key
        return PlannedInputs(
            handles=handles,
            dead_letters={uid: parent.dead_letters.get(uid, StateHandle()) for uid in schemas},
            # The first stored schema of a uid on a timeline; a later one is refused until schemas may evolve.
            tables={uid: parent.tables.get(uid, f"{pipeline.name}/state/{uid}/{slot.timeline}-1") for uid in schemas},
            schemas=schemas,
            adopted=adopted,
        )

    def _adopted(self, uid: str, timeline: str, handle: StateHandle) -> tuple[StateHandle, str | None]:
        for key, record in self._newest_first(uid, timeline):
            merged = adopt(handle, record)
            if merged == handle:
                return handle, None
            if merged is not None and self.files_exist(record.output):
                return merged, key
        return handle, None

    def _newest_first(self, uid: str, timeline: str) -> list[tuple[str, CompactionRecord]]:
        listed = self.objects.list(f"compactions/{uid}/")
        found = [(key, self.objects.read(CompactionRecord, key)) for key in listed]
        mine = [(key, r) for key, r in found if r is not None and r.timeline == timeline]
        return sorted(mine, key=lambda kr: (kr[1].input.through, kr[1].checkpoint, kr[0]), reverse=True)


def adopt(handle: StateHandle, record: CompactionRecord) -> StateHandle | None:
    """The handle with a compaction's output in place of its input, or None where it is no exact prefix.

    A handle can be cut inside a segment only where that is a `runs` table, in which each run keeps its own
    checkpoint id, and only where the compaction read the same segment from the same lower bound.
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


def refuse_incompatible(parent: Parent, schemas: Mapping[str, OperatorSchema], *, allow_removed: bool) -> None:
    """Raises where the declared operators do not fit the parent's state (C6).

    Raises:
        ConflictError: naming uid and field.
    """
    problems = [
        f"{uid}: {', '.join(_differences(old, schemas[uid]))}"
        for uid, old in parent.schemas.items()
        if uid in schemas and schemas[uid].fingerprint != old.fingerprint
    ]
    if problems:
        raise ConflictError(
            f"state schema changed: {'; '.join(problems)}",
            safe="nothing was planned; every restore point is intact.",
            next="declare the old schema again, or give the operator a new uid; schema evolution comes later.",
        )
    removed = [uid for uid in parent.schemas if uid not in schemas]
    if removed and not allow_removed:
        raise ConflictError(
            f"operators are gone from the pipeline, but have state: {', '.join(removed)}",
            safe="nothing was planned; every restore point is intact.",
            next="declare them again; a request with allow_non_restored_state leaves their state behind.",
        )


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


def _differences(old: OperatorSchema, new: OperatorSchema) -> Iterable[str]:
    if old.keys != new.keys:
        yield f"key ({_columns(old)}) became ({_columns(new)})"
    before, after = {f.name: f for f in old.fields}, {f.name: f for f in new.fields}
    for name in dict.fromkeys((*before, *after)):
        if name not in after:
            yield f"field {name} removed"
        elif name not in before:
            yield f"field {name} added"
        elif before[name] != after[name]:
            was, now = before[name], after[name]
            yield f"field {name}: {was.kind} {was.type.sql} became {now.kind} {now.type.sql}"
    if [f.name for f in old.fields] != [f.name for f in new.fields] and before.keys() == after.keys():
        yield "fields changed their order"
    if old.key_groups != new.key_groups:
        yield f"key groups {old.key_groups} became {new.key_groups}"


def _columns(schema: OperatorSchema) -> str:
    return ", ".join(f"{k.name} {k.type.sql}" for k in schema.keys)
