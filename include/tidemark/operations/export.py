"""Exports a checkpoint as a folder of plain files, on this machine or in a bucket."""

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tidemark.context import Context
from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.checkpoints.jobs import open_job
from tidemark.coordinator.records.schema_book import StoredSchemas
from tidemark.coordinator.recovery.savepoints import Savepoints
from tidemark.environment import open_bucket_folder, random_id
from tidemark.errors import StoreError, UsageError
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.core.names import S3Url, is_url
from tidemark.model.retention.export_manifest import NAME, Export, ExportedSchema
from tidemark.model.schema.operator_schema import with_state
from tidemark.operations import reads, verification
from tidemark.settings import Settings

if TYPE_CHECKING:
    from tidemark.transfer.export_bucket import S3Export


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The source of an export: a verified checkpoint, its coordinator, and the savepoint that named it, if any."""

    coordinator: CheckpointCoordinator
    found: Checkpoint
    savepoint: str


def export(context: Context, name: str, at: int | str | None, to: str) -> Export:
    """Writes a self-contained copy of a checkpoint: resolved and stored rows, queries, hashes of all files.

    Args:
        context: of this process.
        name: the pipeline.
        at: a checkpoint by its id, or a savepoint by its name; by default the newest checkpoint.
        to: the folder, on this machine's disk or as `s3://BUCKET/FOLDER`. It holds no export until the export is
            complete.

    Raises:
        NotFoundError: no such pipeline, checkpoint, savepoint or bucket.
        UsageError: the folder exists, its parent does not exist or is no folder; or only Spark can read a state.
        ConflictError: another export to the same URL was completed first.
        DamagedError: the checkpoint is not whole.
        StateOverflowError, StoreError: as readers of state raise them; no part of a local folder is left.
    """
    if is_url(to):
        with open_export(context.settings, to) as place:
            place.refuse_taken()
            return _upload(context, _verify_source(context, name, at), place)
    target = _target(context, to)
    return _write_local(context, _verify_source(context, name, at), target)


def _verify_source(context: Context, name: str, at: int | str | None) -> "Asked":
    coordinator = context.coordinator(context.require_pipeline(name))
    found = (
        Savepoints(coordinator).checkpoint_of(at) if isinstance(at, str) else reads.get_checkpoint(context, name, at)
    )
    verification.verify_checkpoint(context, found)
    return Asked(coordinator=coordinator, found=found, savepoint=at if isinstance(at, str) else "")


def _write_local(context: Context, asked: "Asked", target: Path) -> Export:
    from tidemark.storage.parquet_folder import create_atomically

    with open_job(asked.coordinator, "export", asked.found.id) as job:
        try:
            with create_atomically(target, f".{target.name}.{job}") as folder:
                return _write_files(context, asked, folder)
        except OSError as error:
            raise StoreError(
                f"could not write {target}: {error.strerror or error}",
                safe="the warehouse was only read; no part of the folder was left.",
                next="make room or correct the permissions, or name another folder.",
            ) from error


def _upload(context: Context, asked: "Asked", place: "S3Export") -> Export:
    """Writes to a scratch folder first: size and hash of each file must be known before it is uploaded."""
    from tidemark.storage.scratch import scratch_folder

    here, pipeline = context.warehouse.local_folder, asked.found.plan.pipeline
    with (
        open_job(asked.coordinator, "export", asked.found.id) as job,
        scratch_folder(here, pipeline, random_id) as scratch,
    ):
        place.probe(job)
        try:
            folder = here / scratch / "export"
            folder.mkdir()
            return place.publish(_write_files(context, asked, folder), folder, job)
        except OSError as error:
            raise StoreError(
                f"could not write {pipeline}'s scratch folder: {error.strerror or error}",
                safe="no checkpoint was touched; no export was completed.",
                next="make room on the warehouse's disk or correct the permissions, then export again.",
            ) from error


def _write_files(context: Context, asked: "Asked", folder: Path) -> Export:
    from tidemark.storage.parquet_folder import ParquetFolder
    from tidemark.transfer.export_folder import FolderExport

    inside, found = ParquetFolder(folder), asked.found
    writer = FolderExport(warehouse=context.warehouse.root, folder=inside, checkpoint=found)
    plan, facts = found.plan, found.sealed.facts
    made = Export(
        pipeline=plan.pipeline,
        checkpoint=plan.id,
        timeline=plan.slot.timeline,
        savepoint=asked.savepoint,
        states={uid: writer.state(uid, _queries(context, found, uid)) for uid in with_state(plan.schemas)},
        operator_states=found.operator_states,
        ranges=plan.ranges,
        topic_ids=plan.topic_ids,
        sources=plan.sources,
        isolation=plan.isolation,
        logical_time_ms=plan.logical_time_ms,
        watermark_ms=facts.watermark_ms,
        watermarks=facts.watermarks,
        clocks=facts.clocks,
        covered_until_ms=found.covered_until_ms,
        broadcast_versions=plan.broadcast_versions,
        broadcast_ids=plan.broadcast_ids,
        fingerprint=plan.fingerprint,
        exported_at_ms=context.clock.now_ms(),
        schemas=_schemas(StoredSchemas(asked.coordinator.objects)),
    )
    inside.text(NAME, made.encode().decode())
    return made


def _schemas(stored: StoredSchemas) -> tuple[ExportedSchema, ...]:
    return tuple(
        ExportedSchema(registry=registry, id=id, schema=stored.require(registry, id))
        for registry, ids in stored.all().items()
        for id in ids
    )


def _queries(context: Context, found: Checkpoint, uid: str) -> Mapping[str, str]:
    from tidemark.model.portable_sql.dialects import DUCKDB, SPARK

    return {dialect.name: reads.get_query(context, found, uid, dialect) for dialect in (DUCKDB, SPARK)}


def _target(context: Context, to: str) -> Path:
    target = Path(to).absolute()
    if target.exists():
        raise UsageError(f"{to} exists", safe="it was left alone.", next="name another folder, or remove that one.")
    if not target.parent.is_dir():
        raise UsageError(f"no folder for {to}", next=f"mkdir -p {target.parent}    (or name another folder).")
    if target.resolve().is_relative_to(context.warehouse.local_folder.resolve()):
        raise UsageError(f"{to} is inside the warehouse", next="name a folder outside it.")
    return target


@contextmanager
def open_export(settings: Settings, url: str) -> Iterator["S3Export"]:
    """Opens the destination of an export in a bucket while the block runs. Sends no request to the store yet.

    Raises:
        UsageError: the URL is not a folder in a bucket, or the AWS variables do not fit. The message does not repeat
            the URL, because it may contain a password.
    """
    wanted = S3Url.parsed(url)
    from tidemark.transfer.export_bucket import S3Export

    with closing(open_bucket_folder(settings, wanted)) as folder:
        yield S3Export(folder)
