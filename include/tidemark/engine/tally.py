"""The one counting query of a batch, and what it must show before anything is written (design section 7)."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidemark.engine.frames import applied_sql
from tidemark.errors import EngineError
from tidemark.model.checkpoint import BatchFacts
from tidemark.model.offsets import TopicPartition
from tidemark.model.plan import CheckpointPlan
from tidemark.ports import UidCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What the batch holds, added up over all partitions."""

    records: int = 0
    bytes: int = 0
    greatest_event_time_ms: int | None = None
    applied: Mapping[str, int] = field(default_factory=dict)

    def facts(self, plan: CheckpointPlan) -> BatchFacts:
        """The facts that manifests carry."""
        known = [t for t in (plan.watermark_ms, self.greatest_event_time_ms) if t is not None]
        return BatchFacts(records=self.records, watermark_ms=max(known, default=None), bytes=self.bytes)

    def counts(self, plan: CheckpointPlan) -> dict[str, UidCounts]:
        """Applied and dead-lettered records per operator; they add up to what was read."""
        applied = {uid: self.applied.get(uid, 0) for uid in plan.schemas}
        return {uid: UidCounts(applied=n, dead_lettered=self.records - n) for uid, n in applied.items()}


EMPTY = Tally()


def counted(records: DataFrame, plan: CheckpointPlan) -> Tally:
    """Counts the batch; the action that reads Kafka and fills the cache.

    Offsets are grouped in buckets of 32,768 with a bitmap each, so that a record read twice shows without a shuffle
    of all offsets.

    Raises:
        EngineError: a record outside the plan's ranges, or one read twice.
    """
    uids = list(plan.schemas)
    grouped = records.selectExpr("*", "bitmap_bucket_number(offset) AS _bucket", "bitmap_bit_position(offset) AS _bit")
    found = grouped.groupBy("topic", "partition", "_bucket").agg(*_aggregates(plan)).collect()
    seen: dict[TopicPartition, list[tuple[int, int]]] = defaultdict(list)
    for row in found:
        seen[TopicPartition(row["topic"], row["partition"])].append((row["least"], row["greatest"]))
        if row["records"] != row["offsets"]:
            raise _misread(f"{row['topic']}-{row['partition']} was read more than once near {row['least']}")
    _refuse_outside(plan, seen)
    times = [row["event_time_ms"] for row in found if row["event_time_ms"] is not None]
    return Tally(
        records=sum(row["records"] for row in found),
        bytes=sum(row["bytes"] for row in found),
        greatest_event_time_ms=max(times, default=None),
        applied={uid: sum(row[f"applied_{n}"] for row in found) for n, uid in enumerate(uids)},
    )


def _aggregates(plan: CheckpointPlan) -> list[Column]:
    sql = {
        "records": "count(1)",
        "offsets": "bitmap_count(bitmap_construct_agg(_bit))",
        "least": "min(offset)",
        "greatest": "max(offset)",
        "bytes": "sum(_bytes)",
        "event_time_ms": "unix_millis(max(event_time) FILTER (WHERE _reason IS NULL))",
    }
    sql |= {f"applied_{n}": f"count_if({applied_sql(s)})" for n, s in enumerate(plan.schemas.values())}
    return [F.expr(expression).alias(name) for name, expression in sql.items()]


def _refuse_outside(plan: CheckpointPlan, seen: Mapping[TopicPartition, Sequence[tuple[int, int]]]) -> None:
    for tp, bounds in seen.items():
        least, greatest = min(b[0] for b in bounds), max(b[1] for b in bounds)
        planned = plan.ranges.get(tp)
        if planned is None or least < planned.start or greatest >= planned.end:
            raise _misread(f"{tp}: offsets {least} to {greatest} were read, planned was {planned}")


def _misread(why: str) -> EngineError:
    return EngineError(
        f"read not exact: {why}",
        safe="every completed checkpoint is intact; nothing was written.",
        next="run the pipeline again: it repeats the same ranges; if it fails again, report it with the plan.",
    )
