"""What workers report about the records that they decode: spans of offsets, which show a record that is read twice.

The offsets within a span rise, so if no two spans of a partition overlap, no record is in them twice.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.model.core.offsets import OffsetRanges, TopicPartition

SPANS = "_spans"
"""The column with the spans of a batch, in its first row; null in all others."""


@dataclass(frozen=True, slots=True)
class ReadSpan:
    """Records of one partition with rising offsets, in the order in which a task read them.

    Attributes:
        topic: the topic.
        partition: its partition.
        first: the first offset.
        last: the last offset.
        records: the number of records, fewer than offsets if the log has gaps.
        bytes: bytes of their keys and values.
        greatest_ms: greatest event time of a good record, in milliseconds; None if none is good.
    """

    topic: str
    partition: int
    first: int
    last: int
    records: int
    bytes: int
    greatest_ms: int | None

    @property
    def tp(self) -> TopicPartition:
        """The partition with its topic."""
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class EventTimes:
    """Where the event time of a record is.

    Attributes:
        path: steps to a field of the record; empty = Kafka's timestamp.
        limit_us: the last event time that is not in the future, in microseconds.
    """

    path: tuple[str, ...]
    limit_us: int

    def of(self, batch: pa.RecordBatch, records: pa.StructArray) -> pa.Array:
        """Returns the event time of each record in microseconds; null if it is refused.

        Args:
            batch: what Kafka's source returned.
            records: the decoded records, null where a value was refused.
        """
        found: Any = records
        for step in self.path:
            found = pc.struct_field(found, found.type.get_field_index(step))
        if not self.path:
            found = pc.if_else(records.is_valid(), batch.column("timestamp"), None)
        micros = found.cast(pa.int64())
        return pc.if_else(pc.less_equal(micros, self.limit_us), micros, None)


def span_column(batch: pa.RecordBatch, times: pa.Array) -> pa.Array:
    """Returns the spans of a batch as text in its first row.

    Args:
        batch: what Kafka's source returned.
        times: the event times of its records, in microseconds.
    """
    if not batch.num_rows:
        return pa.nulls(0, pa.string())
    topic = batch.column("topic").dictionary_encode()
    number, partition, offset = (
        column.to_numpy(zero_copy_only=False) for column in (topic.indices, *map(batch.column, ("partition", "offset")))
    )
    sizes = pc.add(*(pc.fill_null(pc.binary_length(batch.column(name)), 0) for name in ("key", "value")))
    ends_here = (np.diff(number) != 0) | (np.diff(partition) != 0) | (np.diff(offset) <= 0)
    spans = []
    for start, end in pairwise([0, *(np.flatnonzero(ends_here) + 1).tolist(), batch.num_rows]):
        greatest = pc.max(times.slice(start, end - start)).as_py()
        spans.append(
            ReadSpan(
                topic.dictionary[int(number[start])].as_py(),
                int(partition[start]),
                int(offset[start]),
                int(offset[end - 1]),
                end - start,
                pc.sum(sizes.slice(start, end - start)).as_py(),
                None if greatest is None else greatest // 1000,
            )
        )
    text = json.dumps([astuple(span) for span in spans], separators=(",", ":"))
    return pa.concat_arrays([pa.array([text], pa.string()), pa.nulls(batch.num_rows - 1, pa.string())])


def spans_in(texts: Iterable[str]) -> list[ReadSpan]:
    """Returns the spans of all batches, ordered by partition and offset."""
    return sorted((ReadSpan(*span) for text in texts for span in json.loads(text)), key=lambda s: (s.tp, s.first))


def are_exact(spans: Sequence[ReadSpan], ranges: OffsetRanges) -> bool:
    """Whether ordered spans are within the ranges, and none of their records was read twice."""
    within = all(s.tp in ranges and ranges[s.tp].start <= s.first and s.last < ranges[s.tp].end for s in spans)
    return within and all(a.tp != b.tp or a.last < b.first for a, b in pairwise(spans))
