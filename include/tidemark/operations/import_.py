"""Imports an export as the first checkpoint of a pipeline, or of a timeline next to its live one."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tidemark.context import Context
from tidemark.coordinator.checkpoints.jobs import open_job
from tidemark.coordinator.plans.inputs import PlannedInputs
from tidemark.coordinator.records.schema_book import StoredSchemas
from tidemark.coordinator.recovery.import_state import Importer, Importing
from tidemark.coordinator.recovery.segment_importer import SegmentImport, SegmentImporter
from tidemark.environment import random_id
from tidemark.errors import ConflictError, SchemaChangedError, StoreError
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.manifest import Checkpoint, WrittenRun
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.checkpoint.segments import StateHandle
from tidemark.model.core.clocks import END_OF_TIME
from tidemark.model.core.names import is_url
from tidemark.model.retention.export_manifest import Export
from tidemark.model.schema.operator_schema import with_state
from tidemark.operations.export import open_export

if TYPE_CHECKING:
    from tidemark.transfer.import_folder import ExportFolder


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRequest:
    """The request to import an export.

    Attributes:
        folder: folder of the export, on this machine's disk or as `s3://BUCKET/FOLDER`.
        pipeline: the pipeline that continues from it; its name may differ.
        timeline: a new timeline next to the live one; None = the first one, of a pipeline without checkpoints.
        allow_non_restored_state: omit the state of operators that the pipeline does not declare.
    """

    folder: str
    pipeline: str
    timeline: str | None = None
    allow_non_restored_state: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """The result of an import, or its preview: `checkpoint` is None if it was not executed.

    Attributes:
        export: the imported export.
        pipeline: the target pipeline.
        timeline: the target timeline.
        checkpoint: name of the new checkpoint.
        rows: stored rows per declared uid.
        empty: declared operators that start empty.
        left_behind: uids of the export whose state was omitted.
    """

    export: Export
    pipeline: str
    timeline: str
    checkpoint: str | None
    rows: Mapping[str, int]
    empty: tuple[str, ...]
    left_behind: tuple[str, ...]


def plan_import(context: Context, request: ImportRequest) -> Imported:
    """Returns what an import would do; writes nothing but scratch files.

    Raises:
        NotFoundError: no such export, bucket or pipeline.
        UsageError: the URL is not a folder in a bucket; or there are no credentials for it.
        StoreError: the bucket or the disk cannot be read.
        DamagedError, CorruptObjectError: the export is not whole.
        IncompatibleStateError: the declaration does not fit; the message names every uid and field.
        ConflictError: the timeline has begun.
        SchemaChangedError: the pipeline decodes by another schema under an id of the export.
    """
    with _open_import(context, request) as (_, wanted):
        importer = Importer(coordinator=context.coordinator(request.pipeline))
        slot = importer.refuse_taken(wanted)
        _refuse_other_schemas(StoredSchemas(importer.coordinator.objects), wanted)
        return describe_import(wanted, importer.inputs(wanted, slot, wanted.least), None)


def import_folder(context: Context, request: ImportRequest) -> Imported:
    """Stores an export's schemas, copies its rows to tables, then completes the checkpoint that names them.

    After a crash, a repetition finishes the checkpoint, or starts again; no object names the earlier rows.

    Raises:
        TidemarkError: as in `plan_import`, and as the steps raise.
    """
    with _open_import(context, request) as (folder, wanted):
        return import_rows(context, folder, wanted)


def import_rows(context: Context, folder: "ExportFolder", wanted: Importing) -> Imported:
    """Imports verified rows, and completes the checkpoint that names them.

    Raises:
        TidemarkError: as the steps raise.
    """
    name = wanted.pipeline.name
    importer = Importer(coordinator=context.coordinator(name))
    with context.lock(name, wanted.timeline):
        left = importer.left_over(wanted)
        if left is not None:
            return describe_import(wanted, left, importer.complete(left))
        slot = importer.refuse_taken(wanted)
        importer.inputs(wanted, slot, wanted.least)
        stored = StoredSchemas(importer.coordinator.objects)
        _refuse_other_schemas(stored, wanted)
        for its in wanted.export.schemas:
            stored.put(its.registry, its.id, its.schema)
        number = importer.take_id(slot, wanted.least)
        inputs = importer.inputs(wanted, slot, number)
        named = {segment.path for handle in inputs.handles.values() for segment in handle}
        with open_job(importer.coordinator, "import", number) as job:
            for uid, handle in wanted.handles(number).items():
                if named & {segment.path for segment in handle}:
                    _import_segment(context, importer, folder, wanted, wanted.segment_import(uid, number, job))
            plan = importer.plan(wanted, slot, number)
            return describe_import(wanted, plan, importer.complete(plan))


@contextmanager
def _open_import(context: Context, request: ImportRequest) -> Iterator[tuple["ExportFolder", Importing]]:
    pipeline = context.pipeline(request.pipeline)
    with _local(context, request) as folder:
        export = folder.read()
        _refuse_drained(export)
        yield (
            folder,
            Importing(
                export=export,
                pipeline=pipeline,
                timeline=request.timeline or keys.FIRST_TIMELINE,
                allow_non_restored_state=request.allow_non_restored_state,
            ),
        )


def _refuse_drained(export: Export) -> None:
    if any(clock.watermark_ms == END_OF_TIME for clock in export.clocks.values()):
        raise ConflictError(
            f"the export is of chk-{export.checkpoint}, which has drained its pipeline: later records would be late",
            next="export the checkpoint before it, and import that.",
        )


@contextmanager
def _local(context: Context, request: ImportRequest) -> Iterator["ExportFolder"]:
    """The export's folder on this machine; an export in a bucket is copied to a scratch folder while the block runs."""
    from tidemark.storage.scratch import scratch_folder
    from tidemark.transfer.import_folder import ExportFolder

    if not is_url(request.folder):
        yield ExportFolder(Path(request.folder))
        return
    with (
        open_export(context.settings, request.folder) as place,
        scratch_folder(context.warehouse.local_folder, request.pipeline, random_id) as scratch,
    ):
        folder = context.warehouse.local_folder / scratch / "export"
        try:
            folder.mkdir()
            place.fetch(folder)
        except OSError as error:
            raise StoreError(
                f"could not write {request.pipeline}'s scratch folder: {error.strerror or error}",
                safe="nothing was imported.",
                next="make room on the warehouse's disk or correct the permissions, then import again.",
            ) from error
        yield ExportFolder(folder)


def _refuse_other_schemas(stored: StoredSchemas, wanted: Importing) -> None:
    for its in wanted.export.schemas:
        found = stored.find(its.registry, its.id)
        if found is not None and not found.means(its.schema):
            name = wanted.pipeline.name
            raise SchemaChangedError(
                f"schema changed: the export has another schema under id {its.id} of the registry {its.registry!r} than"
                f" the one by which {name} decodes",
                safe="nothing was imported.",
                next="import under the name of a pipeline without checkpoints, or name its registry differently.",
            )


def _import_segment(
    context: Context, importer: Importer, folder: "ExportFolder", wanted: Importing, imported: SegmentImport
) -> None:
    """Copies an operator's rows to a table of their own."""
    from tidemark.engine.write.parquet_writer import written_run
    from tidemark.storage.local_store import stage_folder

    state = wanted.export.states[imported.uid]

    def write(place: str) -> WrittenRun:
        with stage_folder(context.warehouse.root, place) as there:
            folder.copy(state.stored, there)
            return written_run(str(there), state.rows, state.schema.bounded_columns)

    made = SegmentImporter(coordinator=importer.coordinator, tables=context.tables).import_segment(imported, write)
    if StateHandle((made,)) != wanted.handles(imported.number)[imported.uid]:
        raise StoreError(f"{imported.table} is not the expected table", next="import again: it uses another name.")


def describe_import(wanted: Importing, inputs: PlannedInputs | CheckpointPlan, done: Checkpoint | None) -> Imported:
    """Describes the result of an import, or its preview."""
    named = {segment.path for handle in inputs.handles.values() for segment in handle}
    imported = {path.split("/")[2] for path in named}
    return Imported(
        export=wanted.export,
        pipeline=wanted.pipeline.name,
        timeline=wanted.timeline,
        checkpoint=None if done is None else done.plan.name,
        rows={uid: handle.rows for uid, handle in inputs.handles.items()},
        empty=tuple(uid for uid in with_state(inputs.schemas) if not inputs.handles[uid]),
        left_behind=tuple(uid for uid, state in wanted.export.states.items() if state.rows and uid not in imported),
    )
