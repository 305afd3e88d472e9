"""The log, connected at the first question: a verb that never asks Kafka needs no broker."""

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from tidemark.model.log_records import BoundedRead, ReadBounds, Wanted
from tidemark.model.offsets import OffsetRange, TopicPartition
from tidemark.ports import PartitionLog
from tidemark.settings import Settings

if TYPE_CHECKING:
    from tidemark.adapters.kafka import KafkaLog


class LazyLog:
    """The port `SourceLog` over the broker of the settings, whose address is looked up when it is first needed."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @cached_property
    def _log(self) -> "KafkaLog":
        from tidemark.adapters.kafka import KafkaLog

        return KafkaLog(self._settings.kafka_address, options=self._settings.kafka_client_options)

    def partitions(self, topics: object, isolation: str) -> Mapping[TopicPartition, PartitionLog]:
        """See `ports.Log`."""
        return self._log.partitions(topics, isolation)

    def topic_ids(self, topics: Iterable[str]) -> Mapping[str, str]:
        """See `ports.Log`."""
        return self._log.topic_ids(topics)

    def offsets_at(self, when_ms: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int | None]:
        """See `ports.Log`."""
        return self._log.offsets_at(when_ms)

    def group_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """See `ports.Log`."""
        return self._log.group_offsets(group, partitions)

    def report_group_offsets(self, group: str, ends: Mapping[TopicPartition, int]) -> None:
        """See `ports.Log`."""
        self._log.report_group_offsets(group, ends)

    def read(
        self, ranges: Mapping[TopicPartition, OffsetRange], isolation: str, bounds: ReadBounds, wanted: Wanted
    ) -> BoundedRead:
        """See `ports.records.RecordReader`."""
        from tidemark.adapters.kafka_records import KafkaRecords

        reader = KafkaRecords(self._settings.kafka_address, options=self._settings.kafka_client_options)
        return reader.read(ranges, isolation, bounds, wanted)
