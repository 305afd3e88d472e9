"""Exports a checkpoint as a folder of plain files, on this machine or in a bucket (G7, G8)."""

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tidemark.context import Context
from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.checkpoints.jobs import open_job
from tidemark.coordinator.recovery.savepoints import Savepoints
from tidemark.errors import StoreError, UsageError
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.core.bucket_url import S3Url, is_url
from tidemark.model.retention.export_manifest import NAME, Export
from tidemark.operations import reads, verification
from tidemark.settings import Settings
from tidemark.system import random_id
from tidemark.warehouse_location import open_bucket_folder

if TYPE_CHECKING:
    from tidemark.transfer.export_bucket import S3Export


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is to be exported: a verified checkpoint, its coordinator, the savepoint that named it (or nothing)."""

    coordinator: CheckpointCoordinator
    found: Checkpoint
    savepoint: str


def export(context: Context, name: str, at: int | str | None, to: str) -> Export:
    """Writes a self-contained copy of a checkpoint: resolved and stored rows, queries, hashes of all files.

    Args:
        context: of this process.
        name: the pipeline.
        at: a checkpoint by its id, a savepoint by its name; the newest checkpoint without it.
        to: the folder, on this machine's disk or as `s3://BUCKET/FOLDER`; there is an export in it when it is
            complete, and none before.

    Raises:
        NotFoundError: no such pipeline, checkpoint, savepoint or bucket.
        UsageError: the folder exists, its parent does not, it is no folder; or only Spark can read a state.
        ConflictError: another export to the same URL was complete first.
        DamagedError: the checkpoint is not whole.
        StateOverflowError, StoreError: as readers of state raise them; no part of a local folder is left.
    """
    if is_url(to):
        with open_export(context.settings, to) as place:
            place.refuse_taken()
            return _uploaded(context, _asked(context, name, at), place)
    target = _target(context, to)
    return _made(context, _asked(context, name, at), target)


def _asked(context: Context, name: str, at: int | str | None) -> "Asked":
    coordinator = context.coordinator(context.require_pipeline(name))
    found = (
        Savepoints(coordinator).checkpoint_of(at) if isinstance(at, str) else reads.get_checkpoint(context, name, at)
    )
    verification.verify_checkpoint(context, found)
    return Asked(coordinator=coordinator, found=found, savepoint=at if isinstance(at, str) else "")


def _made(context: Context, asked: "Asked", target: Path) -> Export:
    from tidemark.storage.parquet_folder import appearing

    with open_job(asked.coordinator, "export", asked.found.id) as job:
        try:
            with appearing(target, f".{target.name}.{job}") as folder:
                return _written(context, asked, folder)
        except OSError as error:
            raise StoreError(
                f"could not write {target}: {error.strerror or error}",
                safe="the warehouse was only read; no part of the folder was left.",
                next="make room or mend the permissions, or name another folder.",
            ) from error


def _uploaded(context: Context, asked: "Asked", place: "S3Export") -> Export:
    """Writes to a scratch folder first: what is sent has to be named by size and hash before it is."""
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
            return place.publish(_written(context, asked, folder), folder, job)
        except OSError as error:
            raise StoreError(
                f"could not write {pipeline}'s scratch folder: {error.strerror or error}",
                safe="no checkpoint was touched; no export was completed.",
                next="make room on the warehouse's disk or mend the permissions, then export again.",
            ) from error


def _written(context: Context, asked: "Asked", folder: Path) -> Export:
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
        states={uid: writer.state(uid, _queries(context, found, uid)) for uid in plan.schemas},
        operator_states=found.operator_states,
        ranges=plan.ranges,
        topic_ids=plan.topic_ids,
        sources=plan.sources,
        isolation=plan.isolation,
        logical_time_ms=plan.logical_time_ms,
        watermark_ms=facts.watermark_ms,
        watermarks=facts.watermarks,
        covered_until_ms=found.covered_until_ms,
        broadcast_versions=plan.broadcast_versions,
        broadcast_ids=plan.broadcast_ids,
        fingerprint=plan.fingerprint,
        exported_at_ms=context.clock.now_ms(),
    )
    inside.text(NAME, made.encoded().decode())
    return made


def _queries(context: Context, found: Checkpoint, uid: str) -> Mapping[str, str]:
    from tidemark.portable_sql.dialects import DUCKDB, SPARK

    return {dialect.name: reads.get_query(context, found, uid, dialect) for dialect in (DUCKDB, SPARK)}


def _target(context: Context, to: str) -> Path:
    target = Path(to).absolute()
    if target.exists():
        raise UsageError(f"{to} exists", safe="it was left alone.", next="name another folder, or remove that one.")
    if not target.parent.is_dir():
        raise UsageError(f"no folder for {to}", next=f"mkdir -p {target.parent}    (or name another folder).")
    if target.resolve().is_relative_to(context.warehouse.local_folder.resolve()):
        raise UsageError(f"{to} lies in the warehouse", next="name a folder outside of it.")
    return target


@contextmanager
def open_export(settings: Settings, url: str) -> Iterator["S3Export"]:
    """The place of an export in a bucket, while the block runs. Asks nothing of the store yet.

    Raises:
        UsageError: no URL of a folder in a bucket, or AWS's variables do not fit. The message does not repeat the URL,
            because it may contain a password.
    """
    wanted = S3Url.parsed(url)
    from tidemark.transfer.export_bucket import S3Export

    with closing(open_bucket_folder(settings, wanted)) as folder:
        yield S3Export(folder)
