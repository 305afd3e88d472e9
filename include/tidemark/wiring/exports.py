"""The verb that takes a checkpoint out of its warehouse, as a folder of plain files (G7, G8)."""

from collections.abc import Mapping
from pathlib import Path

from tidemark.coordinator.jobs import open_job
from tidemark.coordinator.savepoints import Savepoints
from tidemark.errors import StoreError, UsageError
from tidemark.model.checkpoint import Checkpoint
from tidemark.model.exports import NAME, Export
from tidemark.wiring.reads import Reads
from tidemark.wiring.verifications import Verifications


class Exports(Reads, Verifications):
    """Exports; writes nothing to the warehouse but a record that the job is open, and one that it is over."""

    def export(self, name: str, at: int | str | None, to: str) -> Export:
        """Writes a self-contained copy of a checkpoint: resolved and stored rows, queries, hashes of all files.

        Args:
            name: the pipeline.
            at: a checkpoint by its id, a savepoint by its name; the newest checkpoint without it.
            to: the folder, on this machine's disk; it appears when it is complete.

        Raises:
            NotFoundError: no such pipeline, checkpoint or savepoint.
            UsageError: the folder exists, its parent does not, it is no local folder; or only Spark can read a state.
            DamagedError: the checkpoint is not whole.
            StateOverflowError, StoreError: as readers of state raise them; no part of the folder is left.
        """
        from tidemark.adapters.parquet_folder import appearing

        target = self._target(to)
        coordinator = self.coordinator(self.known(name))
        found = Savepoints(coordinator).checkpoint_of(at) if isinstance(at, str) else self.checkpoint(name, at)
        self.verify_checkpoint(found)
        with open_job(coordinator, "export", found.id) as job:
            try:
                with appearing(target, f".{target.name}.{job}") as folder:
                    return self._written(found, at if isinstance(at, str) else "", folder)
            except OSError as error:
                raise StoreError(
                    f"could not write {target}: {error.strerror or error}",
                    safe="the warehouse was only read; no part of the folder was left.",
                    next="make room or mend the permissions, or name another folder.",
                ) from error

    def _written(self, found: Checkpoint, savepoint: str, folder: Path) -> Export:
        from tidemark.adapters.exporting import FolderExport
        from tidemark.adapters.parquet_folder import ParquetFolder

        inside = ParquetFolder(folder)
        writer = FolderExport(warehouse=str(self.settings.warehouse), folder=inside, checkpoint=found)
        plan, facts = found.plan, found.sealed.facts
        made = Export(
            pipeline=plan.pipeline,
            checkpoint=plan.id,
            timeline=plan.slot.timeline,
            savepoint=savepoint,
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
        if "://" in to:
            raise UsageError(
                f"not a folder of this machine: {to}",
                next="export to a local folder, then copy that as a whole: its paths are relative.",
            )
        target = Path(to).absolute()
        if target.exists():
            raise UsageError(f"{to} exists", safe="it was left alone.", next="name another folder, or remove that one.")
        if not target.parent.is_dir():
            raise UsageError(f"no folder for {to}", next=f"mkdir -p {target.parent}    (or name another folder).")
        if target.resolve().is_relative_to(self.settings.warehouse.resolve()):
            raise UsageError(f"{to} lies in the warehouse", next="name a folder outside of it.")
        return target
