"""The verb that erases a key from every restore point; it loads no Spark."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import date

from tidemark.coordinator.retention.erasing import Erased, Eraser, ErasureRequest, refuse_held
from tidemark.coordinator.retention.erasure_search import Found
from tidemark.coordinator.retention.remains import Remains, remains
from tidemark.coordinator.retention.sweeping import Sweeper, Swept
from tidemark.errors import NotFoundError
from tidemark.model.key_groups import typed_key
from tidemark.model.schema import OperatorSchema
from tidemark.wiring.retentions import Retentions


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureReport:
    """What an erasure came to, or would come to: `done` is None where it was not done.

    Attributes:
        uid: the operator.
        key: its key, as text.
        found: where the key was, ahead of the erasure.
        remains: what it does not reach.
        done: what was done.
        swept: what was deleted at once.
    """

    uid: str
    key: tuple[str, ...]
    found: Found
    remains: Remains
    done: Erased | None = None
    swept: Swept | None = None


class Erasing(Retentions):
    """Erases keys."""

    def erasure_plan(self, name: str, uid: str, key: Sequence[str]) -> ErasureReport:
        """Where a key is, and what an erasure of it would write again; writes nothing.

        Raises:
            NotFoundError: no such pipeline, or no checkpoint names the operator.
            UsageError: the key has another number of columns, or a value does not fit.
            ConflictError: a restore point that holds the key is under a legal hold.
            StoreError, CorruptObjectError: something is damaged, or cannot be read.
        """
        return self._looked(self._eraser(name, uid, key))

    def erase(
        self, name: str, uid: str, key: Sequence[str], *, forever: bool = False, owner: str = "", now: bool = False
    ) -> ErasureReport:
        """Erases a key from every restore point; see `Eraser.erase`. A repetition finishes what one left that died.

        Args:
            name: the pipeline.
            uid: the operator.
            key: the key columns' values as text.
            forever: records of the key never count again; else those count that are yet to be read.
            owner: who asks.
            now: delete old files at once, instead of with the next sweep.

        Raises:
            BusyError: another process works on a timeline of the pipeline.
            TidemarkError: as `erasure_plan` and `Eraser.erase`.
        """
        eraser = self._eraser(name, uid, key, forever=forever, owner=owner)
        with ExitStack() as held:
            for timeline in sorted({*eraser.coordinator.timelines.names(), eraser.coordinator.timelines.live()}):
                held.enter_context(self.holding(name, timeline))
            report = self._looked(eraser)
            done = eraser.erase()
        # By no rule: nothing is released, and what is free goes whatever its grace time.
        sweeper = Sweeper(coordinator=eraser.coordinator, files=self.table_files, rule=None, grace_ms=0)
        return replace(report, done=done, swept=sweeper.sweep() if now else None)

    def _looked(self, eraser: Eraser) -> ErasureReport:
        searcher = eraser.searcher
        found = searcher.look()
        refuse_held(eraser.coordinator, found)
        wanted = eraser.request
        return ErasureReport(uid=wanted.uid, key=wanted.texts, found=found, remains=remains(found, searcher))

    def _eraser(self, name: str, uid: str, key: Sequence[str], *, forever: bool = False, owner: str = "") -> Eraser:
        from tidemark.adapters.key_files import ParquetKeyFiles
        from tidemark.engine.files import written_run

        coordinator = self.coordinator(self.known(name))
        values = typed_key(self._schema(name, uid), key)
        request = ErasureRequest(uid=uid, key=values, texts=_texts(values), forever=forever, owner=owner)
        files = ParquetKeyFiles(warehouse=str(self.settings.warehouse), footers=written_run)
        return Eraser(coordinator=coordinator, tables=self.tables, files=files, logs=self.table_files, request=request)

    def _schema(self, name: str, uid: str) -> OperatorSchema:
        """The newest stored schema of an operator, whichever timeline has it.

        Raises:
            NotFoundError: no checkpoint names it.
        """
        known: dict[str, None] = {}
        for found in reversed(self.coordinator(name).timelines.all()):
            if uid in found.plan.schemas:
                return found.plan.schemas[uid]
            known.update(dict.fromkeys(found.plan.schemas))
        told = f"name one of: {', '.join(known)}." if known else f"tidemark run {name}"
        raise NotFoundError(f"no checkpoint of {name} has an operator {uid!r}", next=told)


def _texts(values: Sequence[object]) -> tuple[str, ...]:
    """As `typed_key` reads them again."""
    return tuple(
        v.isoformat() if isinstance(v, date) else str(v).lower() if v in (True, False) else str(v) for v in values
    )


def erasure_facts(report: ErasureReport) -> dict[str, object]:
    """What is told of an erasure, JSON values only."""
    found, left, done = report.found, report.remains, report.done
    files = [(table, path, held) for table, of in found.files.items() for path, held in of.items()]
    return {
        "uid": report.uid,
        "key": list(report.key),
        "executed": done is not None,
        "erasure": None if done is None or not done.number else done.number,
        "restore_points": {name: len(held) for name, held in found.by_entry.items()},
        "files": [{"file": f"{table}/{path}", "rows": h.rows, "bytes": h.file.file.size} for table, path, h in files],
        "rows": sum(h.rows for _, _, h in files),
        "bytes": sum(h.file.file.size for _, _, h in files),
        "deleted_files": None if report.swept is None else len(report.swept.deleted),
        "deleted_log_files": None if report.swept is None else report.swept.log_files,
        "dead_letters": dict(left.dead_letters),
        "sinks": dict(left.sinks),
        "sinks_to_search": list(left.sinks_to_search),
        "topics": {topic: {str(p): end for p, end in sorted(ends.items())} for topic, ends in left.topics.items()},
        "exports": list(left.exports),
        "lists": list(left.lists),
    }
