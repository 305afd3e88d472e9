"""The engine in Python: reads a plan's ranges from a `MemoryLog` and folds them exactly as Spark does."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from tidemark.adapters.memory_decoding import BadRecord, decode
from tidemark.adapters.memory_fold import Decoded, Key, folded, key_of
from tidemark.adapters.memory_log import LogRecord, MemoryLog
from tidemark.adapters.memory_merge import resolved
from tidemark.adapters.memory_tables import MemoryTables
from tidemark.errors import DataLostError
from tidemark.model.checkpoint import BatchFacts, Checkpoint, Verdict
from tidemark.model.dead_letters import Reason
from tidemark.model.offsets import TopicPartition
from tidemark.model.plan import CheckpointPlan
from tidemark.model.schema import OperatorSchema
from tidemark.model.writes import UidCounts, WrittenRun
from tidemark.pipeline import Pipeline

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
Judge = Callable[[CheckpointPlan, Mapping[str, Sequence[str]]], Verdict]
"""Stands in for the gate, which needs Great Expectations and Spark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Letter:
    """A record that no operator can apply."""

    tp: TopicPartition
    record: LogRecord
    reason: str


def _passes(plan: CheckpointPlan, runs: Mapping[str, Sequence[str]]) -> Verdict:
    return Verdict()


@dataclass(frozen=True, kw_only=True)
class MemoryCompute:
    """The twin of the Spark engine.

    Attributes:
        pipeline: the declaration.
        log: where records are.
        tables: where runs are written.
        judge: in place of the gate.
    """

    pipeline: Pipeline
    log: MemoryLog
    tables: MemoryTables
    judge: Judge = _passes

    def read(self, plan: CheckpointPlan) -> "MemoryBatch":
        """See `ports.Compute`."""
        self._refuse_lost(plan)
        intake = _Intake(self.pipeline, plan)
        for tp, within in plan.ranges.items():
            if not within.is_empty:
                intake.take(tp, self.log.records(tp, within))
        self._refuse_lost(plan)
        return MemoryBatch(self, plan, intake)

    def resolve(self, checkpoint: Checkpoint, uid: str) -> dict[Key, dict[str, Any]]:
        """The state of an operator at a checkpoint: finished values per key (I4: every file is read)."""
        return resolved(checkpoint.plan.schemas[uid], self.tables.rows(checkpoint.handles[uid]), checkpoint.now)

    def _refuse_lost(self, plan: CheckpointPlan) -> None:
        now = self.log.topic_ids(plan.topic_ids)
        read = {tp: r for tp, r in plan.ranges.items() if not r.is_empty}
        for topic in sorted({tp.topic for tp in read}):
            if now.get(topic) != plan.topic_ids[topic]:
                raise _lost(f"topic {topic}: id {plan.topic_ids[topic]} became {now.get(topic, 'none')}")
        bounds = self.log.partitions(frozenset(read), plan.isolation)
        for tp, within in read.items():
            if bounds[tp].earliest > within.start:
                raise _lost(
                    f"topic {tp.topic}, partition {tp.partition}, offsets [{within.start}, {bounds[tp].earliest})"
                )
            if bounds[tp].end < within.end:
                raise _lost(f"topic {tp.topic}, partition {tp.partition}, offsets [{bounds[tp].end}, {within.end})")


class _Intake:
    """Decodes records as they are read, and sorts good ones from dead letters."""

    def __init__(self, pipeline: Pipeline, plan: CheckpointPlan) -> None:
        self._event_time = pipeline.only_source.event_time
        self._record = pipeline.only_source.schema
        self._limit = _EPOCH + plan.logical_time_ms * _MS + pipeline.max_future
        self.good: list[Decoded] = []
        self.raw: dict[tuple[str, int, int], LogRecord] = {}
        self.letters: list[_Letter] = []
        self.bytes = 0

    def take(self, tp: TopicPartition, records: Sequence[LogRecord]) -> None:
        """Takes records of one partition."""
        for record in records:
            self.bytes += len(record.key or b"") + len(record.value or b"")
            try:
                self.good.append(self._decoded(tp, record))
                self.raw[tp.topic, tp.partition, record.offset] = record
            except BadRecord as error:
                self.letters.append(_Letter(tp=tp, record=record, reason=str(error)))

    def _decoded(self, tp: TopicPartition, record: LogRecord) -> Decoded:
        fields = decode(record.value, self._record)
        found = Decoded(
            topic=tp.topic,
            partition=tp.partition,
            offset=record.offset,
            event_time=_EPOCH + record.timestamp_ms * _MS,
            fields=fields,
        )
        if self._event_time is not None:
            found = replace(found, event_time=found.at(self._event_time))
        if found.event_time > self._limit:
            raise BadRecord(Reason.IN_THE_FUTURE.value)
        return found


class MemoryBatch:
    """The decoded records of one attempt."""

    facts: BatchFacts
    counts: Mapping[str, UidCounts]

    def __init__(self, compute: MemoryCompute, plan: CheckpointPlan, intake: _Intake) -> None:
        self._compute = compute
        self._plan = plan
        self._intake = intake
        records = len(intake.good) + len(intake.letters)
        seen = [(r.event_time - _EPOCH) // _MS for r in intake.good]
        known = [t for t in (plan.watermark_ms, max(seen, default=None)) if t is not None]
        self.facts = BatchFacts(records=records, watermark_ms=max(known, default=None), bytes=intake.bytes)
        self._applied = {
            uid: [r for r in intake.good if None not in key_of(schema, r)] for uid, schema in plan.schemas.items()
        }
        self.counts = {
            uid: UidCounts(applied=len(found), dead_lettered=records - len(found))
            for uid, found in self._applied.items()
        }

    def write_run(self, uid: str, folder: str) -> WrittenRun:
        """See `ports.Batch`."""
        run = folded(self._plan.schemas[uid], self._applied[uid], self._plan)
        return self._compute.tables.write(folder, run)

    def write_dead_letters(self, uid: str, folder: str) -> WrittenRun:
        """See `ports.Batch`."""
        return self._compute.tables.write(folder, self._letter_rows(uid, self._plan.schemas[uid]))

    def judge(self, runs: Mapping[str, Sequence[str]]) -> Verdict:
        """See `ports.Batch`."""
        return self._compute.judge(self._plan, runs)

    def close(self) -> None:
        """See `ports.Batch`; there is nothing to release."""

    def _letter_rows(self, uid: str, schema: OperatorSchema) -> list[dict[str, object]]:
        letters = list(self._intake.letters)
        for r in self._intake.good:
            if None in key_of(schema, r):
                record = self._intake.raw[r.topic, r.partition, r.offset]
                tp = TopicPartition(r.topic, r.partition)
                letters.append(_Letter(tp=tp, record=record, reason=Reason.NULL_KEY.value))
        letters.sort(key=lambda x: (x.tp, x.record.offset))
        return [
            {
                "topic": x.tp.topic,
                "partition": x.tp.partition,
                "offset": x.record.offset,
                "timestamp": _EPOCH + x.record.timestamp_ms * _MS,
                "uid": uid,
                "reason": x.reason,
                "key": x.record.key,
                "value": x.record.value,
            }
            for x in letters
        ]


def _lost(what: str) -> DataLostError:
    return DataLostError(
        f"data lost: {what}",
        safe="every completed checkpoint is intact; nothing was published.",
        next="run the pipeline again: it plans anew; repeat with --accept-loss to record the gap.",
    )
