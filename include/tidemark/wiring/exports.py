"""The verb that takes a checkpoint out of its warehouse, as a folder of plain files, here or in a bucket (G7, G8)."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.checkpoints.jobs import open_job
from tidemark.coordinator.recovery.savepoints import Savepoints
from tidemark.errors import StoreError, UsageError
from tidemark.model.buckets import is_url
from tidemark.model.checkpoint import Checkpoint
from tidemark.model.exports import NAME, Export
from tidemark.wiring.reads import Reads
from tidemark.wiring.roots import random_id
from tidemark.wiring.s3_urls import opened_export
from tidemark.wiring.verifications import Verifications

if TYPE_CHECKING:
    from tidemark.adapters.s3_exports import S3Export


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is to be exported: a verified checkpoint, its coordinator, the savepoint that named it (or nothing)."""

    coordinator: CheckpointCoordinator
    found: Checkpoint
    savepoint: str


class Exports(Reads, Verifications):
    """Exports; writes nothing to the warehouse but scratch, a record that the job is open, and one that it is over."""

    def export(self, name: str, at: int | str | None, to: str) -> Export:
        """Writes a self-contained copy of a checkpoint: resolved and stored rows, queries, hashes of all files.

        Args:
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
            with opened_export(self.settings, to) as place:
                place.refuse_taken()
                return self._uploaded(self._asked(name, at), place)
        target = self._target(to)
        return self._made(self._asked(name, at), target)

    def _asked(self, name: str, at: int | str | None) -> "Asked":
        coordinator = self.coordinator(self.known(name))
        found = Savepoints(coordinator).checkpoint_of(at) if isinstance(at, str) else self.checkpoint(name, at)
        self.verify_checkpoint(found)
        return Asked(coordinator=coordinator, found=found, savepoint=at if isinstance(at, str) else "")

    def _made(self, asked: "Asked", target: Path) -> Export:
        from tidemark.adapters.parquet_folder import appearing

        with open_job(asked.coordinator, "export", asked.found.id) as job:
            try:
                with appearing(target, f".{target.name}.{job}") as folder:
                    return self._written(asked, folder)
            except OSError as error:
                raise StoreError(
                    f"could not write {target}: {error.strerror or error}",
                    safe="the warehouse was only read; no part of the folder was left.",
                    next="make room or mend the permissions, or name another folder.",
                ) from error

    def _uploaded(self, asked: "Asked", place: "S3Export") -> Export:
        """Writes to a scratch folder first: what is sent has to be named by size and hash before it is."""
        from tidemark.adapters.scratch import scratch_folder

        here, pipeline = self.here, asked.found.plan.pipeline
        with (
            open_job(asked.coordinator, "export", asked.found.id) as job,
            scratch_folder(here, pipeline, random_id) as scratch,
        ):
            place.probe(job)
            try:
                folder = here / scratch / "export"
                folder.mkdir()
                return place.publish(self._written(asked, folder), folder, job)
            except OSError as error:
                raise StoreError(
                    f"could not write {pipeline}'s scratch folder: {error.strerror or error}",
                    safe="no checkpoint was touched; no export was completed.",
                    next="make room on the warehouse's disk or mend the permissions, then export again.",
                ) from error

    def _written(self, asked: "Asked", folder: Path) -> Export:
        from tidemark.adapters.exporting import FolderExport
        from tidemark.adapters.parquet_folder import ParquetFolder

        inside, found = ParquetFolder(folder), asked.found
        writer = FolderExport(warehouse=self.root, folder=inside, checkpoint=found)
        plan, facts = found.plan, found.sealed.facts
        made = Export(
            pipeline=plan.pipeline,
            checkpoint=plan.id,
            timeline=plan.slot.timeline,
            savepoint=asked.savepoint,
            states={uid: writer.state(uid, self._queries(found, uid)) for uid in plan.schemas},
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
            exported_at_ms=self.clock.now_ms(),
        )
        inside.text(NAME, made.encoded().decode())
        return made

    def _queries(self, found: Checkpoint, uid: str) -> Mapping[str, str]:
        from tidemark.model.dialects import DUCKDB, SPARK

        return {dialect.name: self.query_of(found, uid, dialect) for dialect in (DUCKDB, SPARK)}

    def _target(self, to: str) -> Path:
        target = Path(to).absolute()
        if target.exists():
            raise UsageError(f"{to} exists", safe="it was left alone.", next="name another folder, or remove that one.")
        if not target.parent.is_dir():
            raise UsageError(f"no folder for {to}", next=f"mkdir -p {target.parent}    (or name another folder).")
        if target.resolve().is_relative_to(self.here.resolve()):
            raise UsageError(f"{to} lies in the warehouse", next="name a folder outside of it.")
        return target
