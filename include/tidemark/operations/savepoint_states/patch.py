"""Patches a savepoint: makes a fork with values set and keys deleted, pinned under a new name."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from tidemark.context import Context
from tidemark.coordinator.plans.initial_offsets import to_ms
from tidemark.coordinator.plans.inputs import InputPlanner, Parent
from tidemark.coordinator.plans.restore_point import RestorePoint
from tidemark.coordinator.records.timelines import Head
from tidemark.coordinator.recovery.restore import Recovery
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.coordinator.recovery.savepoint_transform import Transformer, Transforming, mark_patched, refuse_taken
from tidemark.declare.pipeline import Pipeline
from tidemark.errors import UsageError
from tidemark.model.checkpoint.manifest import Checkpoint, WrittenRun
from tidemark.model.checkpoint.plan import Slot
from tidemark.model.core.canonical import checksum
from tidemark.model.core.names import parse_id
from tidemark.model.retention.savepoint import SavepointRequest
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.operations import timelines
from tidemark.operations.reads import refuse_stateless
from tidemark.operations.savepoint_states.written_states import write_state
from tidemark.sql.initial_state import refuse_given_rows
from tidemark.sql.patch_rows import PatchedState

if TYPE_CHECKING:
    from tidemark.transfer.patch_tables import GivenPatch, PatchRows


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchRequest:
    """The corrections of a patch, and the name of the result.

    Attributes:
        pipeline: the declaration.
        source: the checkpoint or savepoint to correct.
        name: name of the new savepoint.
        values: path of a table of keys with their new state, per uid.
        deletes: path of a table of keys to delete, per uid.
        timeline: name of the fork; None = the name of the savepoint.
        at: when the keys that are set were last accessed; None = as late as the corrected checkpoint allows.
        owner: the person responsible for the new savepoint.
        note: its purpose.
        expires_at_ms: when it expires; None = never.
    """

    pipeline: str
    source: RestoreRequest
    name: str
    values: Mapping[str, str]
    deletes: Mapping[str, str]
    timeline: str | None = None
    at: datetime | None = None
    owner: str = ""
    note: str = ""
    expires_at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Patched:
    """The result of a patch, or its preview: `checkpoint` is None if it was not executed."""

    source: Checkpoint
    savepoint: str
    timeline: str
    states: Mapping[str, PatchedState]
    checkpoint: Checkpoint | None


def source_of(text: str, *, force: bool = False, allow_non_restored_state: bool = False) -> RestoreRequest:
    """Parses the source of a patch or a fork: `chk-17`, `17`, or a savepoint, which never looks like an id.

    Args:
        text: its name.
        force: also accept a savepoint that the pipeline was drained with.
        allow_non_restored_state: leave the state of operators that the pipeline does not declare behind.
    """
    if text.removeprefix("chk-").isdecimal():
        return RestoreRequest(checkpoint=parse_id(text), allow_non_restored_state=allow_non_restored_state)
    return RestoreRequest(savepoint=text, force=force, allow_non_restored_state=allow_non_restored_state)


def tables_of(texts: Iterable[str]) -> dict[str, str]:
    """Parses texts `UID=TABLE` to the path of a table per uid.

    Raises:
        UsageError: a text has another form, or an operator has two tables.
    """
    return texts_by_uid(texts, ("TABLE", "tables"), "aircraft=right.parquet")


def texts_by_uid(texts: Iterable[str], words: tuple[str, str], example: str) -> dict[str, str]:
    """Parses texts `UID=TEXT` to a text per uid.

    Args:
        texts: as the command line and forms have them.
        words: for messages: the form of a text, as in "SQL", and its noun, as in "queries".
        example: a valid text.

    Raises:
        UsageError: a text has another form, or an operator has two.
    """
    found, (form, plural) = dict[str, str](), words
    for text in texts:
        uid, _, value = text.partition("=")
        uid = uid.strip()
        if not (uid and value.strip()):
            raise UsageError(f"not of the form UID={form}: {text!r}", next=f"write it as in {example}.")
        if uid in found:
            raise UsageError(f"two {plural} for {uid}", next="give one per operator.")
        found[uid] = value
    return found


def plan_patch(context: Context, request: PatchRequest) -> Patched:
    """Returns what a patch would do: reads every table and looks up its keys; writes nothing.

    Raises:
        NotFoundError: no such pipeline, checkpoint, savepoint or table.
        UsageError: no such operator, or it cannot be patched; a table does not fit; or there is nothing to do.
        ConflictError: the name of the savepoint or of the timeline is taken.
        DamagedError, IncompatibleStateError: the checkpoint is not whole, or does not fit the declaration.
        StateOverflowError, StoreError: as readers of state raise them.
    """
    with _prepare(context, request) as prepared:
        refuse_taken(context.coordinator(request.pipeline), prepared.wanted)
        return prepared.result(None)


def patch(context: Context, request: PatchRequest) -> Patched:
    """Makes the fork, completes the checkpoint with the corrections on it, and pins that; see `Transformer.transform`.

    Raises:
        BusyError: another process works on that timeline.
        TidemarkError: as in `plan_patch`, and as the steps raise.
    """
    with _prepare(context, request) as prepared:
        wanted = prepared.wanted
        with context.lock(wanted.pipeline.name, wanted.timeline):
            done, _ = _patcher(context, prepared).transform(wanted)
        return prepared.result(done)


@contextmanager
def _prepare(context: Context, request: PatchRequest) -> Iterator["_Prepared"]:
    from tidemark.storage.parquet_folder import ParquetFolder
    from tidemark.transfer.patch_tables import patch_rows

    recovery, restore_point = timelines.find_restore_point(context, request.pipeline, request.source)
    given = _given_patches(context, request, recovery, restore_point)
    with ExitStack() as opened:
        folder = ParquetFolder(Path(opened.enter_context(TemporaryDirectory(prefix="tidemark-patch-"))))
        rows = {uid: opened.enter_context(patch_rows(context.warehouse.root, patch)) for uid, patch in given.items()}
        # Written to scratch once: their hashes distinguish this patch from every other one, before it has an id.
        files = {uid: made.write(folder, uid, 0) for uid, made in rows.items()}
        digest = checksum({uid: [f.sha256 for f in found] for uid, found in files.items()})
        uids = tuple(uid for uid, found in files.items() if found)
        if not uids:
            raise UsageError("no key is set, and no existing key is deleted", next="check the tables.")
        wanted = _wanted(request, restore_point, context.pipeline(request.pipeline), digest)
        states = {uid: made.describe(files[uid]) for uid, made in rows.items()}
        yield _Prepared(wanted=replace(wanted, uids=uids), rows=rows, states=states, given=given)


def _given_patches(
    context: Context, request: PatchRequest, recovery: Recovery, restore_point: RestorePoint
) -> dict[str, "GivenPatch"]:
    from tidemark.transfer.patch_tables import GivenPatch

    pipeline, found = context.pipeline(request.pipeline), restore_point.checkpoint
    uids = list(dict.fromkeys([*request.values, *request.deletes]))
    _refuse_unpatchable(pipeline, uids)
    genesis = recovery.genesis(restore_point)
    planner = InputPlanner(objects=recovery.coordinator.objects, files_exist=recovery.coordinator.files_exist)
    parent = Parent.of(Head(timeline="", sequence=1, entry=genesis))
    inputs = planner.plan(pipeline, Slot(timeline=request.name, sequence=2), parent, allow_removed=False)
    return {
        uid: GivenPatch(
            schema=mark_patched(inputs.schemas[uid], found.id + 1),
            handle=inputs.handles[uid],
            now=found.now,
            at_ms=accessed_ms(inputs.schemas[uid], found, request.at),
            values=request.values.get(uid),
            deletes=request.deletes.get(uid),
        )
        for uid in uids
    }


def _patcher(context: Context, prepared: "_Prepared") -> Transformer:
    name = prepared.wanted.pipeline.name

    def write(uid: str, folder: str, number: int) -> WrittenRun:
        return _write_patch(context, prepared, uid, folder, number)

    return Transformer(coordinator=context.coordinator(name), tables=context.tables, write=write)


def _write_patch(context: Context, prepared: "_Prepared", uid: str, folder: str, number: int) -> WrittenRun:
    return write_state(context, prepared.rows[uid], prepared.given[uid].schema, folder, number)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prepared:
    """A patch whose rows are prepared, but not written yet."""

    wanted: Transforming
    rows: Mapping[str, "PatchRows"]
    states: Mapping[str, PatchedState]
    given: Mapping[str, "GivenPatch"]

    def result(self, done: Checkpoint | None) -> Patched:
        wanted = self.wanted
        return Patched(
            source=wanted.restore_point.checkpoint,
            savepoint=wanted.savepoint.name,
            timeline=wanted.timeline,
            states=self.states,
            checkpoint=done,
        )


def _wanted(request: PatchRequest, restore_point: RestorePoint, pipeline: Pipeline, digest: str) -> Transforming:
    timeline = request.timeline or request.name
    identity = {"of": restore_point.checkpoint.id, "as": request.name, "timeline": timeline, "rows": digest}
    savepoint = SavepointRequest(
        name=request.name,
        owner=request.owner,
        origin=f"patch {checksum(identity)}",
        note=request.note,
        expires_at_ms=request.expires_at_ms,
    )
    return Transforming(restore_point=restore_point, pipeline=pipeline, timeline=timeline, savepoint=savepoint, uids=())


def _refuse_unpatchable(pipeline: Pipeline, uids: list[str]) -> None:
    operators = [operator.uid for operator in pipeline.operators]
    if not uids:
        raise UsageError("nothing to patch", next="give --set UID=TABLE, --delete UID=TABLE, or both.")
    for uid in uids:
        if uid in operators:
            refuse_stateless(pipeline.schemas()[uid], pipeline.schemas())
            refuse_given_rows(pipeline.schemas()[uid], "a patch", "correct the topic, and backfill from a savepoint.")
            continue
        if uid in pipeline.schemas():
            raise UsageError(
                f"{uid} is broadcast state, a copy of its source: a patch would be lost with the next copy",
                next="correct the source; lists of operators (split_list, union_list) cannot be patched either.",
            )
        raise UsageError(f"{pipeline.name} has no operator {uid!r}", next=f"name one of: {', '.join(operators)}.")


def accessed_ms(schema: OperatorSchema, found: Checkpoint, at: datetime | None) -> int:
    """When the keys that are set count as accessed. Depends on the request and the checkpoint, never on a wall clock.

    Not later than the checkpoint's own time on the operator's clock, because access times never decrease.
    """
    now, ttls = found.now.of(schema.clock), [f.ttl.ms for f in schema.fields if f.ttl is not None]
    if at is None:
        if now is None and ttls:
            raise UsageError(
                f"state of {schema.uid} expires on event time, and {found.plan.name} has no watermark",
                next="give the time when the keys were last accessed: --at TIME.",
            )
        return found.plan.logical_time_ms if now is None else now
    given = to_ms(at)
    if now is not None and given > now:
        raise UsageError(
            f"--at is later than {found.plan.name} on the clock of {schema.uid}",
            next="give an earlier time, or omit --at.",
        )
    if now is not None and ttls and given + min(ttls) <= now:
        raise UsageError(
            f"the state set for {schema.uid} would have expired already at {found.plan.name}",
            next="give a later time, or omit --at.",
        )
    return given
