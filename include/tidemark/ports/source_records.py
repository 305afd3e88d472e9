"""Records of Kafka within bounds: for people who ask where a row comes from, and for the timestamps of a plan."""

from collections.abc import Mapping
from typing import Protocol

from tidemark.model.core.log_records import BoundedRead, ReadBounds, Wanted
from tidemark.model.core.offsets import OffsetRange, TopicPartition


class RecordReader(Protocol):
    """Records of Kafka within bounds. Never the records of a checkpoint: an engine reads its own."""

    def read(
        self, ranges: Mapping[TopicPartition, OffsetRange], isolation: str, bounds: ReadBounds, wanted: Wanted
    ) -> BoundedRead:
        """Reads ranges partition after partition, until one of the bounds ends it.

        Args:
            ranges: what the log still has of them is read; what it lacks is left out.
            isolation: Kafka's; under `read_committed` records of aborted transactions are left out.
            bounds: when to stop.
            wanted: which records are answered.

        Raises:
            NotFoundError: a partition does not exist.
            BrokerError: no answer.
        """
