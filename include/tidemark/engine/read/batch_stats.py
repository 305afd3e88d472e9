"""The one counting query of a batch, and the checks of its result before anything is written."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidemark.declare.pipeline import Pipeline
from tidemark.engine.read.erased_keys import blocked_column
from tidemark.engine.read.frames import applied_sql, filtered_sql, late_sql, refused_sql
from tidemark.errors import EngineError
from tidemark.model.checkpoint.dead_letters import Reason
from tidemark.model.checkpoint.manifest import BatchFacts
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.core.offsets import TopicPartition
from tidemark.model.retention.erasure import BlockedKey
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.ports import UidCounts

UNKNOWN_SCHEMAS = f"count_if(_reason LIKE '{Reason.UNKNOWN_SCHEMA.value}%')"
"""SQL that counts records whose schema was not known when they were decoded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchStats:
    """The contents of a batch, added up over all partitions.

    Attributes:
        records: number of records per input.
        bytes: bytes of all inputs.
        greatest_ms: greatest event time of a good record, per partition of the pipeline's sources.
        applied: number of applied records per uid that reads an input.
        filtered: number of filtered records, per uid with a condition.
        late: number of records whose window had closed, per uid with windows.
        blocked: records of erased keys per uid: they are not counted.
        rejected: records that are a dead letter of at least one of these uids; each counts once.
        unknown_schemas: records whose schema was not known, of inputs that were decoded by the parent's schemas.
    """

    records: Mapping[str, int] = field(default_factory=dict)
    bytes: int = 0
    greatest_ms: Mapping[TopicPartition, int] = field(default_factory=dict)
    applied: Mapping[str, int] = field(default_factory=dict)
    filtered: Mapping[str, int] = field(default_factory=dict)
    late: Mapping[str, int] = field(default_factory=dict)
    blocked: Mapping[str, int] = field(default_factory=dict)
    rejected: int = 0
    unknown_schemas: int = 0

    def facts(self, plan: CheckpointPlan) -> BatchFacts:
        """Returns the facts for the manifest."""
        return BatchFacts.after(plan, records=sum(self.records.values()), size=self.bytes, seen=self.greatest_ms)

    def counts(self, pipeline: Pipeline, plan: CheckpointPlan) -> dict[str, UidCounts]:
        """Returns the counts per uid that reads an input; they add up to that input's records.

        Folds with a joined key or condition are left out, because the joined rows are not known yet.
        """
        found = {}
        for name in pipeline.inputs:
            for uid in countable(pipeline, plan, name):
                read, applied = self.records.get(name, 0) - self.blocked.get(uid, 0), self.applied.get(uid, 0)
                filtered = self.filtered.get(uid, 0)
                found[uid] = UidCounts(
                    applied=applied,
                    filtered=filtered,
                    dead_lettered=read - applied - filtered,
                    late=self.late.get(uid, 0),
                )
        return found


def count_batch(
    inputs: Mapping[str, DataFrame],
    pipeline: Pipeline,
    plan: CheckpointPlan,
    blocked: Sequence[BlockedKey] = (),
    recalled: Collection[str] = (),
) -> BatchStats:
    """Counts the batch; this action alone reads Kafka, and it fills the caches of all inputs.

    Offsets are grouped in buckets of 32,768 with one bitmap each, so a record read twice is detected without a shuffle.

    Args:
        inputs: decoded frames.
        pipeline: the declaration.
        plan: the plan.
        blocked: keys whose records are dropped.
        recalled: inputs that were decoded by the schemas of the parent.

    Raises:
        EngineError: a record is outside the ranges of the plan, or was read twice.
    """
    if not inputs:
        return BatchStats()
    uids = [uid for name in inputs for uid in countable(pipeline, plan, name)]
    drops = _drops(plan, uids, blocked)
    parts = (_grouped(frame, _Input(name, pipeline, plan, recalled), uids, drops) for name, frame in inputs.items())
    found = reduce(DataFrame.unionAll, parts).collect()
    seen: dict[TopicPartition, list[tuple[int, int]]] = defaultdict(list)
    greatest, records = dict[TopicPartition, int](), dict.fromkeys(inputs, 0)
    for row in found:
        tp = TopicPartition(row["topic"], row["partition"])
        seen[tp].append((row["least"], row["greatest"]))
        records[row["input"]] += row["records"]
        if (at := row["event_time_ms"]) is not None:
            greatest[tp] = max(at, greatest.get(tp, at))
        if row["records"] != row["offsets"]:
            raise inexact_read(f"{row['topic']}-{row['partition']} was read more than once near {row['least']}")
    _refuse_outside(plan, seen)
    return BatchStats(
        records=records,
        bytes=sum(row["bytes"] for row in found),
        greatest_ms=greatest,
        applied={uid: sum(row[f"applied_{n}"] for row in found) for n, uid in enumerate(uids)},
        filtered={
            uid: sum(row[f"filtered_{n}"] for row in found)
            for n, uid in enumerate(uids)
            if filtered_sql(plan.schemas[uid]) is not None
        },
        late={
            uid: sum(row[f"late_{n}"] for row in found)
            for n, uid in enumerate(uids)
            if plan.schemas[uid].window is not None
        },
        blocked={uid: sum(row[f"blocked_{n}"] for row in found) for n, uid in enumerate(uids) if uid in drops},
        rejected=sum(row["rejected"] for row in found),
        unknown_schemas=sum(row["unknown_schemas"] for row in found) if recalled else 0,
    )


def _drops(plan: CheckpointPlan, uids: Sequence[str], blocked: Sequence[BlockedKey]) -> dict[str, Column]:
    found = {uid: blocked_column(plan.schemas[uid], blocked) for uid in uids}
    return {uid: column for uid, column in found.items() if column is not None}


@dataclass(frozen=True, slots=True)
class _Input:
    name: str
    pipeline: Pipeline
    plan: CheckpointPlan
    recalled: Collection[str]


def _grouped(frame: DataFrame, of: _Input, uids: Sequence[str], drops: Mapping[str, Column]) -> DataFrame:
    name, pipeline, plan = of.name, of.pipeline, of.plan
    own = countable(pipeline, plan, name)
    event_time = "unix_millis(max(event_time) FILTER (WHERE _reason IS NULL))"
    sql = {
        "records": "count(1)",
        "offsets": "bitmap_count(bitmap_construct_agg(_bit))",
        "least": "min(offset)",
        "greatest": "max(offset)",
        "bytes": "sum(_bytes)",
        # Broadcast records do not advance event time: a rule written today would expire all state of last year's
        # records.
        "event_time_ms": event_time if name in pipeline.sources else "CAST(NULL AS BIGINT)",
    }
    for n, uid in enumerate(uids):
        schema = plan.schemas[uid]
        wanted = {"applied": applied_sql(schema), "filtered": filtered_sql(schema), "late": late_sql(schema)}
        for what, condition in wanted.items():
            kept = f"{condition} AND NOT _blocked_{n}" if uid in drops else condition
            if condition is not None:
                sql[f"{what}_{n}"] = f"count_if({kept})" if uid in own else "CAST(0 AS BIGINT)"
        if uid in drops:
            frame = frame.withColumn(f"_blocked_{n}", drops[uid] if uid in own else F.lit(False))
            sql[f"blocked_{n}"] = f"count_if(_blocked_{n})"
    dropped = {uid: f"_blocked_{n}" for n, uid in enumerate(uids) if uid in drops}
    sql["rejected"] = rejected_sql([(plan.schemas[uid], dropped.get(uid)) for uid in own])
    if of.recalled:
        sql["unknown_schemas"] = UNKNOWN_SCHEMAS if name in of.recalled else "CAST(0 AS BIGINT)"
    grouped = frame.selectExpr("*", "bitmap_bucket_number(offset) AS _bucket", "bitmap_bit_position(offset) AS _bit")
    counts = grouped.groupBy("topic", "partition", "_bucket").agg(*(F.expr(e).alias(as_) for as_, e in sql.items()))
    return counts.selectExpr(f"'{name}' AS input", "*")


def countable(pipeline: Pipeline, plan: CheckpointPlan, name: str) -> list[str]:
    """Returns the uids that read an input, except folds with a joined key or condition: the rows are not known yet."""
    return [uid for uid in pipeline.readers(name) if not plan.schemas[uid].is_decided_by_joins]


def rejected_sql(readers: Sequence[tuple[OperatorSchema, str | None]]) -> str:
    """Returns SQL that counts the records that are a dead letter of at least one operator.

    Args:
        readers: for each operator its stored schema, and the column that says whether a record's key was erased.
    """
    refused = [
        f"({refused_sql(schema)}" + (")" if erased is None else f" AND NOT {erased})") for schema, erased in readers
    ]
    return f"count_if({' OR '.join(refused)})" if refused else "CAST(0 AS BIGINT)"


def counts_of(records: DataFrame, schema: OperatorSchema) -> UidCounts:
    """Counts the records of an operator, in a query of its own."""
    conditions = {"applied": applied_sql(schema), "filtered": filtered_sql(schema) or "false", "read": "true"}
    conditions["late"] = late_sql(schema) or "false"
    counts = (F.expr(f"count_if({condition})").alias(name) for name, condition in conditions.items())
    (row,) = records.agg(*counts).collect()
    refused = row["read"] - row["applied"] - row["filtered"]
    return UidCounts(applied=row["applied"], filtered=row["filtered"], dead_lettered=refused, late=row["late"])


def _refuse_outside(plan: CheckpointPlan, seen: Mapping[TopicPartition, Sequence[tuple[int, int]]]) -> None:
    for tp, bounds in seen.items():
        least, greatest = min(b[0] for b in bounds), max(b[1] for b in bounds)
        planned = plan.ranges.get(tp)
        if planned is None or least < planned.start or greatest >= planned.end:
            raise inexact_read(f"{tp}: offsets {least} to {greatest} were read, but {planned} was planned")


def inexact_read(why: str) -> EngineError:
    """Returns the error for a read that did not find the same records each time."""
    return EngineError(
        f"inexact read: {why}",
        safe="every completed checkpoint is intact; nothing was written.",
        next="run the pipeline again: it repeats the same ranges; if it fails again, report it with the plan.",
    )
