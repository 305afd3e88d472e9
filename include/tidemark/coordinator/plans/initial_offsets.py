"""The offsets at which a source starts when it is read for the first time, resolved once, to numbers."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from tidemark.declare.pipeline import KafkaSource
from tidemark.errors import DeclarationError
from tidemark.model.core.offsets import TopicPartition
from tidemark.ports import Log, PartitionLog

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def to_ms(when: datetime) -> int:
    """Milliseconds since the epoch; a datetime without a time zone is taken as UTC."""
    aware = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(milliseconds=1)


def first_starts(
    source: KafkaSource, log: Log, bounds: Mapping[TopicPartition, PartitionLog]
) -> dict[TopicPartition, int]:
    """Start offset of every partition by `KafkaSource.start`; a partition that it does not mention starts at earliest.

    Raises:
        DeclarationError: explicit offsets name a partition that is not read, or "committed" has no group.
        BrokerError: Kafka did not answer.
    """
    earliest = {tp: b.earliest for tp, b in bounds.items()}
    start = source.start
    if isinstance(start, datetime):
        when = to_ms(start)
        at = log.offsets_at({tp: when for tp in bounds})
        return {tp: b.end if (first := at.get(tp)) is None else min(first, b.end) for tp, b in bounds.items()}
    if isinstance(start, Mapping):
        return earliest | _explicit(start, bounds)
    if start == "committed":
        if source.group is None:
            raise DeclarationError('start="committed" without a group', next="name the consumer group: group=...")
        return earliest | dict(log.group_offsets(source.group, bounds))
    return {tp: b.end for tp, b in bounds.items()} if start == "latest" else earliest


def _explicit(
    start: Mapping[TopicPartition, int], bounds: Mapping[TopicPartition, PartitionLog]
) -> dict[TopicPartition, int]:
    unknown = sorted(str(tp) for tp in start if tp not in bounds)
    if unknown:
        raise DeclarationError(
            f"explicit start offsets of {', '.join(unknown)}, which the source does not read",
            next=f"name only partitions among: {', '.join(str(tp) for tp in sorted(bounds))}.",
        )
    return dict(start)
