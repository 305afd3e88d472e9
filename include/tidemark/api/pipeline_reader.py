"""A pipeline of a warehouse, for reading: its checkpoints, state, sinks and metrics, without Spark."""

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tidemark.api.checkpoints import CompletedCheckpoint, get_completed, list_completed
from tidemark.api.lookups import At, add_advice, find_id
from tidemark.api.sinks import SinkRows
from tidemark.api.state import StateTable
from tidemark.context import Context
from tidemark.errors import NotFoundError, UsageError
from tidemark.model.checkpoint.codec import body_of
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.retention.findings import Verified
from tidemark.operations import checkpoints, observability, queries, reads, sinks, verification
from tidemark.operations.queries import DiffRequest

if TYPE_CHECKING:
    import pyarrow as pa

    from tidemark.readers.state_diff import Diff


@dataclass(frozen=True, slots=True)
class PipelineReader:
    """What a pipeline has recorded. Reading needs neither Spark, Airflow, Kafka nor the pipeline's file.

    Attributes:
        context: the parts of Tidemark that work on it; not part of the public interface.
        name: the pipeline.
    """

    context: Context
    name: str

    def checkpoints(self, limit: int | None = None) -> list[CompletedCheckpoint]:
        """Completed checkpoints of the live timeline, newest first, released ones too. Reads a manifest for each.

        Args:
            limit: at most this many.

        >>> [chk.name for chk in w["flights"].checkpoints(limit=2)]
        ['chk-3', 'chk-2']
        """
        return list_completed(self.context, self.name, limit)

    def latest(self) -> CompletedCheckpoint | None:
        """The newest completed checkpoint of the live timeline; None if there is none yet."""
        return next(iter(self.checkpoints(limit=1)), None)

    def checkpoint(self, at: At) -> CompletedCheckpoint:
        """One completed checkpoint, of any timeline, released ones too.

        Args:
            at: its number, `"chk-6"`, a savepoint, or an aware datetime, which names the newest checkpoint of the live
                timeline whose logical time is not after it.

        Raises:
            NotFoundError: no such checkpoint or savepoint, or no checkpoint as of the time.
            UsageError: the time has no zone.

        >>> from datetime import UTC, datetime
        >>> w["flights"].checkpoint("winter"), w["flights"].checkpoint(datetime(2013, 2, 14, tzinfo=UTC))
        (<chk-2 on t1: 3 records, completed>, <chk-1 on t1: 2 records, completed>)
        >>> w["flights"].checkpoint("chk-99")
        Traceback (most recent call last):
            ...
        tidemark.errors.NotFoundError: no completed checkpoint chk-99
        Safe: nothing was written.
        Next: .checkpoints() lists them.
        """
        number = find_id(self.context, self.name, at)
        if number is None:
            raise UsageError("no checkpoint is named", next="name one, or use .latest().")
        with add_advice(".checkpoints() lists them."):
            return get_completed(self.context, self.name, number)

    def in_progress(self) -> CheckpointPlan | None:
        """The plan of the checkpoint in progress; None if there is none."""
        return checkpoints.find_pending(self.context, self.name)

    def state(self, uid: str, at: At | None = None) -> StateTable:
        """The state of an operator. Nothing but the manifest is read before you ask the result.

        Args:
            uid: the operator.
            at: which checkpoint, as in `checkpoint`; the newest one without it. Later checkpoints change nothing in
                what you got.

        Raises:
            NotFoundError: no such operator, checkpoint or savepoint, or no checkpoint yet.
            ReleasedError: retention has released the checkpoint; the error names one that is kept.
            UsageError: the time has no zone, or the operator keeps no state.

        >>> w["flights"].state("aircraft", at="winter").get("N619AA")["last_airport"]
        'JFK'
        >>> w["flights"].state("crews")
        Traceback (most recent call last):
            ...
        tidemark.errors.NotFoundError: chk-3 has no operator 'crews'
        Safe: nothing was written.
        Next: name one of: aircraft, rotations, routes.
        """
        found = self._found(at)
        reads.state_schema_of(found, uid)
        return StateTable(self.context, self.name, uid, found)

    def sink(self, name: str, at: At | None = None) -> SinkRows:
        """The rows of a sink. Nothing but the manifest is read before you ask the result.

        Args:
            name: the sink; of a sink to Kafka this is its outbox.
            at: as in `state`.

        Raises:
            NotFoundError: no such sink, checkpoint or savepoint; or the sink keeps no rows.
            ReleasedError: retention has released the checkpoint.
        """
        found = self._found(at)
        sinks.sink_of(found, name)
        return SinkRows(self.context, self.name, name, found)

    def sinks(self) -> list[dict[str, Any]]:
        """The sinks, with what waits to be sent and why it was not sent: `tidemark sink list --json`.

        >>> [(sink["sink"], sink["waiting"]["records"]) for sink in w["flights"].sinks()]
        [('knock_on_delays', 0)]
        """
        return list(body_of(sinks.list_sinks(self.context, self.name)))

    def diff(
        self,
        uid: str,
        before: At,
        after: At,
        *,
        detail: Literal["upserts", "changes", "values", "keys"] = "upserts",
        limit: int | None = None,
    ) -> "Diff":
        """What changed in an operator's state from one checkpoint to another, key by key.

        Args:
            uid: the operator.
            before: a checkpoint, as in `checkpoint`.
            after: another one; it may be older, or on another timeline.
            detail: `upserts` costs what changed: which keys were `upserted` (touched, and there at `after`) or
                `deleted` (touched, and not there at `after`; perhaps never at `before`). `changes` distinguishes
                `inserted` from `updated` keys, which reads the keys of the state at `before`. `values` adds the row
                before and after. `keys` is the name of 0.1 for `upserts`, with `changed` for `upserted`; deprecated.
            limit: at most this many rows; counts are of all keys.

        Returns:
            `rows`, an Arrow table with the structs `key` (and `before`, `after`) and the column `change`; `counts` per
            change; `bytes_read` (None if both states were read whole) and `bytes_total`.

        Raises:
            NotFoundError: no such operator, checkpoint or savepoint.
            UsageError: the operator has other keys at the other checkpoint.

        >>> w["flights"].diff("aircraft", "chk-1", "chk-2").counts
        {'upserted': 2}
        >>> diff = w["flights"].diff("aircraft", "chk-1", "chk-2", detail="values")
        >>> diff.counts == {"updated": 1, "inserted": 1}
        True
        >>> for row in diff.rows.to_pylist():
        ...     print(row["key"], row["change"], row["after"]["flights"])
        {'tail_number': 'N14228'} updated 2
        {'tail_number': 'N619AA'} inserted 2
        """
        from tidemark.readers.state_diff import Detail

        if detail == "keys":
            warnings.warn('detail="keys" is now detail="upserts", the default', DeprecationWarning, stacklevel=2)
        first, last = (self._found(at).id for at in (before, after))
        request = DiffRequest(uid=uid, before=first, after=last, detail=Detail(detail), limit=limit)
        return queries.diff_states(self.context, self.name, request)

    def sql(self, statement: str, at: At | None = None) -> "pa.Table":
        """The rows of one read-only statement, in DuckDB's dialect, over states and manifests.

        Args:
            statement: over `<uid>`, `<uid>_at(N)`, `checkpoints`, `checkpoint_states`, `checkpoint_offsets`,
                `source_watermarks`, `operator_states` and `metrics`; `show tables` lists them.
            at: the checkpoint that `<uid>` is as of and the others end with; the newest one without it.

        Raises:
            NotFoundError: an unknown view, checkpoint or savepoint; or no checkpoint yet.
            UsageError: it is no read-only statement, or DuckDB refuses it.

        >>> w["flights"].sql("select id, records from checkpoints order by id").to_pydict()
        {'id': [1, 2, 3], 'records': [2, 3, 2]}
        """
        return queries.run_sql(self.context, self.name, statement, find_id(self.context, self.name, at))

    def metrics(self) -> dict[str, Any]:
        """All metrics, under Flink's names where it has them; -1 means "none yet": `tidemark checkpoint stats --json`.

        >>> w["flights"].metrics()["numberOfCompletedCheckpoints"]
        3
        """
        return observability.list_gauges(self.context, self.name)

    def verify(self, at: At | None = None, *, content: bool = False) -> Verified:
        """Checks that restore points are whole. Changes nothing; damage is reported, not raised.

        Args:
            at: only this checkpoint; every restore point without it.
            content: compare every byte of every data file, not only sizes.

        Returns:
            `points` that were checked, `broken` ones, and `damages` with file, reason and broken restore points.

        Raises:
            NotFoundError: no such checkpoint or savepoint, or no checkpoint yet.

        >>> found = w["flights"].verify(content=True)
        >>> found.points, found.broken
        (('chk-1', 'chk-2', 'chk-3', 'savepoint winter', 'timeline t1'), ())
        """
        number = find_id(self.context, self.name, at)
        return verification.verify(self.context, self.name, number, content=content)

    def _found(self, at: At | None) -> Checkpoint:
        number = find_id(self.context, self.name, at)
        if number is None:
            try:
                return reads.get_checkpoint(self.context, self.name)
            except NotFoundError as error:
                raise NotFoundError(error.what, safe=error.safe, next=".run() makes the first one.") from None
        with add_advice(".checkpoints() lists them."):
            return reads.get_checkpoint(self.context, self.name, number)

    def __repr__(self) -> str:
        return f"<pipeline {self.name}>"
