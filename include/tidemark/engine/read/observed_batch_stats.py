"""Statistics of a batch, observed on the way to a fold: they need no query of their own.

In a small batch every offset in the ranges of the plan has a bit, so a record read twice is detected, as in
`engine.read.batch_stats`. Of a large one, the workers that decode it report the spans of offsets that they have read.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.declare.pipeline import Pipeline
from tidemark.engine.read.batch_stats import UNKNOWN_SCHEMAS, BatchStats, countable, rejected_sql
from tidemark.engine.read.frames import applied_sql, filtered_sql, late_sql
from tidemark.engine.read.read_spans import SPANS, are_exact, spans_in
from tidemark.engine.session.python_workers import decodes_in_workers
from tidemark.engine.write.parquet_writer import Observed
from tidemark.formats.envelope import split_payload
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.core.offsets import TopicPartition

_NAME = "tally"
_Read = tuple[int, Mapping[TopicPartition, int | None]]
"""Bytes of a batch, and the greatest event time of a good record per partition."""
_PARTITIONS, _BITMAPS, _BITS = 16, 2, 32_768
"""With more partitions, or more bits in Spark's bitmaps, a query costs less than the observation."""


@dataclass(frozen=True, slots=True)
class ObservedBatchStats:
    """The observation of one input, for operators without blocked keys.

    Attributes:
        pipeline: the declaration.
        plan: the plan.
        name: name of the input.
        recalled: whether it was decoded by the schemas of the parent.
    """

    pipeline: Pipeline
    plan: CheckpointPlan
    name: str
    recalled: bool = False

    @property
    def is_small(self) -> bool:
        """Whether the batch is small enough."""
        return len(self._partitions) <= _PARTITIONS and self._bitmaps <= _BITMAPS

    @property
    def is_reported(self) -> bool:
        """Whether workers report the spans of a batch that is not small."""
        source, pipeline = self.pipeline.inputs[self.name], self.pipeline
        # What workers do not know, Kafka's own fields and the keys of changes, could still refuse a record.
        plain = split_payload(source.schema) == source.schema and not source.format.has_changes
        return not self.is_small and plain and self.name in pipeline.sources and self._is_decoded_in_workers

    @property
    def _is_decoded_in_workers(self) -> bool:
        return decodes_in_workers(self.pipeline.inputs[self.name].format, self.at_most)

    @property
    def at_most(self) -> int:
        """The greatest possible number of records."""
        return self._ends[-1]

    def on(self, records: DataFrame, observed: Observed) -> DataFrame:
        """Returns the same records, some with two more columns, counted as they pass by."""
        told = (F.expr(sql).alias(name) for name, sql in self._aggregates().items())
        if self.is_reported:
            return observed.on(records, _NAME, *told)
        shifts = (end - self.plan.ranges[tp].end for tp, end in zip(self._partitions, self._ends, strict=True))
        place = f"offset + {_array(shifts)}[_slot] AS _place"
        return observed.on(records.selectExpr("*", f"{self._slot()} AS _slot", place), _NAME, *told)

    def result(self, observed: Observed) -> BatchStats | None:
        """Returns the statistics after the action; None if none, or inconsistent ones, were reported: then count."""
        found = observed.of(_NAME)
        read = None if not found else self._in_spans(found) if self.is_reported else self._in_bits(found)
        if read is None:
            return None
        size, times = read
        return BatchStats(
            records={self.name: found["records"]},
            bytes=size,
            greatest_ms={tp: at for tp, at in times.items() if at is not None},
            applied={uid: found[f"applied_{n}"] for n, uid in enumerate(self._uids)},
            filtered={uid: found[f"filtered_{n}"] for n, uid in enumerate(self._uids) if f"filtered_{n}" in found},
            late={uid: found[f"late_{n}"] for n, uid in enumerate(self._uids) if f"late_{n}" in found},
            rejected=found["rejected"],
            unknown_schemas=found["unknown_schemas"] if self.recalled else 0,
        )

    def _in_bits(self, found: Mapping[str, Any]) -> _Read | None:
        if found["records"] != sum(found[f"offsets_{n}"] for n in range(self._bitmaps)):
            return None
        times = {tp: found[f"event_time_ms_{n}"] for n, tp in enumerate(self._partitions)}
        return found["bytes"] or 0, times

    def _in_spans(self, found: Mapping[str, Any]) -> _Read | None:
        spans = spans_in(found["spans"] or ())
        if found["records"] != sum(s.records for s in spans) or not are_exact(spans, self.plan.ranges):
            return None
        times: dict[TopicPartition, int | None] = {}
        for span in spans:
            times[span.tp] = max((at for at in (times.get(span.tp), span.greatest_ms) if at is not None), default=None)
        return sum(s.bytes for s in spans), times

    @property
    def _uids(self) -> Sequence[str]:
        return countable(self.pipeline, self.plan, self.name)

    @property
    def _partitions(self) -> list[TopicPartition]:
        """All partitions of the input, so that the generated code stays the same if another partition is empty."""
        return sorted(tp for tp in self.plan.ranges if tp.topic in self.plan.sources[self.name])

    @property
    def _ends(self) -> list[int]:
        """The end offsets of each partition, if all ranges are laid out one after the other from zero."""
        sizes = (self.plan.ranges[tp].end - self.plan.ranges[tp].start for tp in self._partitions)
        return list(itertools.accumulate(sizes))

    @property
    def _bitmaps(self) -> int:
        return -(-self.at_most // _BITS)

    def _slot(self) -> str:
        cases = (
            f"WHEN topic = '{tp.topic}' AND `partition` = {tp.partition} THEN {n}"
            for n, tp in enumerate(self._partitions)
        )
        return f"CASE {' '.join(cases)} END"

    def _aggregates(self) -> dict[str, str]:
        sql = {"records": "count(1)"}
        sql |= {"spans": f"collect_list({SPANS})"} if self.is_reported else self._in_place()
        for n, uid in enumerate(self._uids):
            schema = self.plan.schemas[uid]
            sql[f"applied_{n}"] = f"count_if({applied_sql(schema)})"
            for what, condition in (("filtered", filtered_sql(schema)), ("late", late_sql(schema))):
                if condition is not None:
                    sql[f"{what}_{n}"] = f"count_if({condition})"
        sql["rejected"] = rejected_sql([(self.plan.schemas[uid], None) for uid in self._uids])
        if self.recalled:
            sql["unknown_schemas"] = UNKNOWN_SCHEMAS
        return sql

    def _in_place(self) -> dict[str, str]:
        """Returns the aggregates over the place of a record in the ranges."""
        starts = [0, *self._ends[:-1]]
        # A record from elsewhere has no bit, so there would be fewer bits than records.
        bit = f"CASE WHEN _place >= {_array(starts)}[_slot] AND _place < {_array(self._ends)}[_slot] THEN _place END"
        sql = {"bytes": "sum(_bytes)"}
        for n in range(self._bitmaps):
            here = f"CASE WHEN ({bit}) DIV {_BITS} = {n} THEN _place % {_BITS} END"
            sql[f"offsets_{n}"] = f"bitmap_count(bitmap_construct_agg({here}))"
        for n in range(len(self._partitions)):
            sql[f"event_time_ms_{n}"] = (
                f"max(CASE WHEN _slot = {n} AND _reason IS NULL THEN unix_millis(event_time) END)"
            )
        return sql


def _array(numbers: Iterable[int]) -> str:
    """Returns numbers of a plan, which generated code takes as an argument if their index varies (adr/0011)."""
    return f"array({', '.join(f'{n}L' for n in numbers)})"
