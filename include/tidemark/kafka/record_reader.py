"""Records of a real Kafka for people: a consumer that joins no group, commits nothing and reads within bounds."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaPartition

from tidemark.kafka.client import Question
from tidemark.kafka.connection import connect, group_reader
from tidemark.kafka.log import KafkaLog
from tidemark.model.core.log_records import (
    BoundedRead,
    LogRecord,
    Place,
    ReadBounds,
    RecordCollector,
    StoppedBy,
    Wanted,
)
from tidemark.model.core.offsets import OffsetRange, TopicPartition

GROUP = "tidemark-records"
PORTION = 500
_AT_ONCE = {
    "enable.partition.eof": "true",
    "enable.auto.offset.store": "false",
    "auto.offset.reset": "error",
    "fetch.wait.max.ms": "100",
    # Records waiting in memory: a browser requests twenty records, not the topic.
    "queued.max.messages.kbytes": "4096",
    "fetch.message.max.bytes": "1048576",
    "fetch.max.bytes": "4194304",
}


@dataclass(slots=True)
class _Look:
    """One read in progress."""

    consumer: Consumer
    ask: Question
    collector: RecordCollector
    deadline: float

    def through(self, tp: TopicPartition, within: OffsetRange) -> tuple[StoppedBy, Place] | None:
        """Reads one partition; returns None if it reached the end of its range."""
        at = within.start
        self.consumer.assign([KafkaPartition(tp.topic, tp.partition, at)])
        while time.monotonic() < self.deadline:
            for message in self._portion():
                if (message.topic(), message.partition()) != (tp.topic, tp.partition):
                    continue  # fetched before the partition was assigned
                error = message.error()
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    raise self.ask.failure(error)
                offset = message.offset()
                if error is not None or offset is None or offset >= within.end:
                    return None
                at = offset + 1
                stopped = self.collector.take(tp, _record(message, offset))
                if stopped is not None:
                    return stopped, (tp, at)
        return "time", (tp, at)

    def _portion(self) -> list[Message]:
        wait = max(0.0, min(0.1, self.deadline - time.monotonic()))
        try:
            return self.consumer.consume(PORTION, wait)
        except KafkaException as error:
            raise self.ask.failure(error.args[0]) from error


class KafkaRecords(KafkaLog):
    """The port `SourceLog` over confluent-kafka: the log with its records. See `KafkaLog` for the arguments."""

    def read(
        self, ranges: Mapping[TopicPartition, OffsetRange], isolation: str, bounds: ReadBounds, wanted: Wanted
    ) -> BoundedRead:
        """See `ports.records.RecordReader`."""
        deadline = time.monotonic() + bounds.seconds
        ask = Question(connect(self._bootstrap, self._options), self._bootstrap, "read records", bounds.seconds)
        collector = RecordCollector(bounds, wanted)
        options = {**self._options, **_AT_ONCE, "isolation.level": isolation}
        with group_reader(self._bootstrap, GROUP, options) as consumer:
            look = _Look(consumer, ask, collector, deadline)
            for tp, within in self._available_ranges(ranges, isolation, bounds.seconds):
                stopped = look.through(tp, within)
                if stopped is not None:
                    return collector.done(*stopped)
        return collector.done()

    def _available_ranges(
        self, ranges: Mapping[TopicPartition, OffsetRange], isolation: str, seconds: float
    ) -> Iterable[tuple[TopicPartition, OffsetRange]]:
        """Returns the part of each range that is still in the log, in order; Kafka refuses a start that was deleted."""
        log = KafkaLog(self._bootstrap, timeout=seconds, options=self._options)
        found = log.partitions(frozenset(ranges), isolation) if ranges else {}
        for tp, within in sorted(ranges.items()):
            start, end = max(within.start, found[tp].earliest), min(within.end, found[tp].end)
            if start < end:
                yield tp, OffsetRange(start, end)


def _record(message: Message, offset: int) -> LogRecord:
    return LogRecord(
        offset=offset,
        timestamp_ms=message.timestamp()[1],
        key=message.key(),
        value=message.value(),
        headers=_headers(message),
    )


def _headers(message: Message) -> tuple[tuple[str, bytes | None], ...]:
    found: Any = message.headers() or ()
    return tuple((name, value) for name, value in found)
