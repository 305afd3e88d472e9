"""Manifests as Arrow tables: the relations `checkpoints`, `checkpoint_states` and `checkpoint_offsets`.

There are also `operator_states`, because operator state is part of the manifest, `source_watermarks`, and `metrics`,
which includes the results of reporting consumer-group offsets.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from io import BytesIO
from typing import Any

import pyarrow as pa
from pyarrow.json import ParseOptions, read_json

from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.store_objects import OffsetReport
from tidemark.model.core.offsets import TopicPartition

_TIME = pa.timestamp("ms", tz="UTC")
CHECKPOINTS = pa.schema(
    {
        "id": pa.int64(), "name": pa.string(), "timeline": pa.string(), "sequence": pa.int64(),
        "attempt": pa.int64(), "parent": pa.int64(), "interval_start": _TIME, "interval_end": _TIME,
        "logical_time": _TIME, "watermark": _TIME, "covered_until": _TIME, "planned_at": _TIME,
        "records": pa.int64(), "record_bytes": pa.int64(), "dead_letters": pa.int64(), "keys": pa.int64(),
        "run_bytes": pa.int64(), "full_bytes": pa.int64(), "gate_passed": pa.bool_(), "seconds": pa.float64(),
        "isolation": pa.string(), "origin": pa.string(), "fingerprint": pa.string(),
    }
)  # fmt: skip
"""One row per completed checkpoint; `keys` counts touched keys, bytes are of its runs and of the whole state."""
STATES = pa.schema(
    {
        "checkpoint": pa.int64(), "uid": pa.string(), "rows": pa.int64(), "bytes": pa.int64(),
        "segments": pa.int64(), "files": pa.int64(), "keys": pa.int64(), "run_bytes": pa.int64(),
        "applied": pa.int64(), "filtered": pa.int64(), "dead_letters": pa.int64(), "late": pa.int64(),
        "fired": pa.int64(), "frontier": _TIME, "schema_fingerprint": pa.string(),
    }
)  # fmt: skip
"""One row per checkpoint and operator; `rows` are stored rows, no fewer than keys; `frontier`: of windows or timers."""
OFFSETS = pa.schema(
    {
        "checkpoint": pa.int64(), "topic": pa.string(), "partition": pa.int64(),
        "start_offset": pa.int64(), "end_offset": pa.int64(), "pending": pa.int64(), "topic_id": pa.string(),
    }
)  # fmt: skip
"""One row per checkpoint and Kafka partition: offsets from the start (included) to the end (excluded), and the number
of offsets in the log beyond the end when the checkpoint was planned."""
METRICS = pa.schema(
    {
        "checkpoint": pa.int64(), "metric": pa.string(), "topic": pa.string(), "partition": pa.int64(),
        "value": pa.int64(),
    }
)  # fmt: skip
"""Metrics of the source under Flink's names, one row per checkpoint, metric and, if it has one, partition."""
WATERMARKS = pa.schema(
    {
        "checkpoint": pa.int64(), "source": pa.string(), "watermark": _TIME, "idle": pa.bool_(), "delay_ms": pa.int64(),
    }
)  # fmt: skip
"""One row per checkpoint and source that declares a watermark; `delay_ms` is null where the checkpoint read nothing."""
OPERATOR_STATES = pa.schema(
    {
        "checkpoint": pa.int64(), "uid": pa.string(), "field": pa.string(), "mode": pa.string(),
        "position": pa.int64(), "element_json": pa.string(),
    }
)  # fmt: skip
"""One row per checkpoint, operator, list and element, positions from 0; `mode` is `split` or `union`."""


def checkpoints_table(found: Iterable[Checkpoint]) -> pa.Table:
    """The relation `checkpoints`."""
    return _table((_checkpoint(c) for c in found), CHECKPOINTS)


def states_table(found: Iterable[Checkpoint]) -> pa.Table:
    """The relation `checkpoint_states`."""
    return _table((row for c in found for row in _states(c)), STATES)


def offsets_table(found: Iterable[Checkpoint]) -> pa.Table:
    """The relation `checkpoint_offsets`."""
    return _table((row for c in found for row in _offsets(c)), OFFSETS)


def _table(rows: Iterable[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    """Returns the rows, converted through JSON, because pyarrow imports pandas to make an array of a list."""
    lines = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    if not lines:
        return pa.Table.from_batches([], schema=schema)
    plain = pa.schema([(f.name, pa.int64() if f.type == _TIME else f.type) for f in schema])
    return read_json(BytesIO(lines), parse_options=ParseOptions(explicit_schema=plain)).cast(schema)


def operator_states_table(found: Iterable[Checkpoint]) -> pa.Table:
    """The relation `operator_states`."""
    return _table((row for c in found for row in _elements(c)), OPERATOR_STATES)


def watermarks_table(found: Iterable[Checkpoint]) -> pa.Table:
    """The relation `source_watermarks`."""
    return _table((row for c in found for row in _clocks(c)), WATERMARKS)


def metrics_table(found: Sequence[Checkpoint], reports: Sequence[OffsetReport]) -> pa.Table:
    """Returns the relation `metrics`.

    `pendingRecords`, `currentOffsets` and `committedOffsets` are per partition, the last one if the offsets were
    reported to a consumer group. `commitsSucceeded` and `commitsFailed` count such reports up to the checkpoint, if an
    input names a group. `watermarkLag` is the logical time minus the greatest event time in ms, once there is one.

    Args:
        found: checkpoints, newest first.
        reports: the reports of the pipeline.
    """
    by_id: dict[int, list[OffsetReport]] = {}
    for report in reports:
        by_id.setdefault(report.checkpoint, []).append(report)
    rows: list[dict[str, Any]] = []
    succeeded = failed = 0
    for c in reversed(found):
        mine = by_id.get(c.id, [])
        succeeded += sum(r.failure is None for r in mine)
        failed += sum(r.failure is not None for r in mine)
        rows += _of_partitions(c, {t for r in mine if r.failure is None for t in c.plan.sources.get(r.input, ())})
        if reports:
            rows += [_metric(c, "commitsSucceeded", succeeded), _metric(c, "commitsFailed", failed)]
        if c.sealed.facts.watermark_ms is not None:
            rows.append(_metric(c, "watermarkLag", c.plan.logical_time_ms - c.sealed.facts.watermark_ms))
    return _table(rows, METRICS)


def _of_partitions(c: Checkpoint, reported: Collection[str]) -> Iterator[dict[str, Any]]:
    for tp, r in c.plan.ranges.items():
        yield _metric(c, "pendingRecords", c.plan.pending.get(tp, 0), tp)
        yield _metric(c, "currentOffsets", r.end, tp)
        if tp.topic in reported:
            yield _metric(c, "committedOffsets", r.end, tp)


def _metric(c: Checkpoint, name: str, value: int, tp: TopicPartition | None = None) -> dict[str, Any]:
    topic, partition = (None, None) if tp is None else (tp.topic, tp.partition)
    return {"checkpoint": c.id, "metric": name, "topic": topic, "partition": partition, "value": value}


def _checkpoint(c: Checkpoint) -> dict[str, Any]:
    plan, sealed, interval = c.plan, c.sealed, c.interval
    return {
        "id": c.id,
        "name": plan.name,
        "timeline": plan.slot.timeline,
        "sequence": plan.slot.sequence,
        "attempt": sealed.attempt,
        "parent": plan.parent,
        "interval_start": interval and interval.start_ms,
        "interval_end": interval and interval.end_ms,
        "logical_time": plan.logical_time_ms,
        "watermark": sealed.facts.watermark_ms,
        "covered_until": c.covered_until_ms,
        "planned_at": plan.planned_at_ms,
        "records": sealed.facts.records,
        "record_bytes": sealed.facts.bytes,
        "dead_letters": sealed.dead_lettered,
        "keys": sum(a.keys for a in sealed.acks),
        "run_bytes": sum(a.run_bytes for a in sealed.acks),
        "full_bytes": sum(a.handle.bytes for a in sealed.acks),
        "gate_passed": sealed.verdict.passed,
        "seconds": sum(sealed.timings_ms.values()) / 1000,
        "isolation": plan.isolation,
        "origin": plan.origin,
        "fingerprint": plan.fingerprint,
    }


def _clocks(c: Checkpoint) -> list[dict[str, Any]]:
    rules = {name: clock.rule for name, clock in c.plan.clocks.items()}
    return [
        {
            "checkpoint": c.id,
            "source": name,
            "watermark": clock.watermark_ms,
            "idle": clock.is_idle,
            "delay_ms": None if (rule := rules[name]) is None else rule.delay_ms,
        }
        for name, clock in c.source_clocks.items()
    ]


def _states(c: Checkpoint) -> list[dict[str, Any]]:
    return [
        {
            "checkpoint": c.id,
            "uid": a.uid,
            "rows": a.handle.rows,
            "bytes": a.handle.bytes,
            "segments": len(a.handle.segments),
            "files": sum(s.files for s in a.handle),
            "keys": a.keys,
            "run_bytes": a.run_bytes,
            "applied": a.applied,
            "filtered": a.filtered,
            "dead_letters": a.dead_lettered,
            "late": a.late,
            "fired": a.fired,
            "frontier": c.now.frontiers.get(a.uid),
            "schema_fingerprint": c.plan.schemas[a.uid].fingerprint,
        }
        for a in c.sealed.acks
    ]


def _offsets(c: Checkpoint) -> list[dict[str, Any]]:
    return [
        {
            "checkpoint": c.id,
            "topic": tp.topic,
            "partition": tp.partition,
            "start_offset": r.start,
            "end_offset": r.end,
            "pending": c.plan.pending.get(tp, 0),
            "topic_id": c.plan.topic_ids[tp.topic],
        }
        for tp, r in c.plan.ranges.items()
    ]


def _elements(c: Checkpoint) -> list[dict[str, Any]]:
    return [
        {
            "checkpoint": c.id,
            "uid": uid,
            "field": x.name,
            "mode": x.mode.value,
            "position": n,
            "element_json": json.dumps(element, ensure_ascii=False),
        }
        for uid, state in c.operator_states.items()
        for x in state.lists
        for n, element in enumerate(x.elements)
    ]
