"""All ports in dicts: the twins for tests, `tidemark.testing.replay` and the simulation."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import Enum
from threading import Lock
from typing import Any
from zlib import crc32

from tidemark.declare.pipeline import Pipeline
from tidemark.declare.sources import Broadcast, DeltaTable, KafkaSource, TopicPattern
from tidemark.errors import BrokerError, DataLostError, NotFoundError, StoreError, UsageError
from tidemark.formats.envelope import Sent, encode_record
from tidemark.model.checkpoint.broadcast_copies import TableVersion
from tidemark.model.checkpoint.messages import Message, record_refused
from tidemark.model.core.offsets import TopicPartition
from tidemark.ports import CheckpointStore, PutOutcome, UncertainPut
from tidemark.ports.observing import LineageEvent
from tidemark.processing.broadcasts import checked_rows
from tidemark.processing.shapes import record_shape
from tidemark.processing.value_codec import codec_of
from tidemark.testing.twin.compute import MemoryBatch, MemoryCompute
from tidemark.testing.twin.log import MemoryLog
from tidemark.testing.twin.memory_inputs import EPOCH, MS
from tidemark.testing.twin.tables import MemoryTables

__all__ = [
    "Fault",
    "FaultyStore",
    "Feed",
    "ManualClock",
    "MemoryBatch",
    "MemoryCompute",
    "MemoryForeignTables",
    "MemoryLineage",
    "MemoryLog",
    "MemoryMetrics",
    "MemorySender",
    "MemoryStore",
    "MemoryTables",
    "Record",
    "SequentialIds",
    "epoch_ms",
]


# Appends the records of a script to a `MemoryLog`, each to a topic of its input.
@dataclass(frozen=True, kw_only=True)
class Record:
    """A record of a script with its place in Kafka; leave out what does not matter (Kafka Streams' `TestRecord`).

    >>> Record(value={"sku": "tea", "cents": 250}, key="tea").key
    'tea'

    Attributes:
        value: an instance of the source's dataclass, a dict that JSON can encode, raw bytes, or None.
        key: the message key; text is encoded as UTF-8. Records of one key go to one partition.
        partition: the partition; the default goes by the key, or distributes records in turn.
        timestamp: Kafka's timestamp of the record, with a time zone.
        source: the name of a source, or the uid of a broadcast state that is read from Kafka; needed if the value does
            not show it.
    """

    value: object
    key: str | bytes | None = None
    partition: int | None = None
    timestamp: datetime | None = None
    source: str | None = None


class Feed:
    """Creates the topics of a pipeline and of its sinks, and appends to the sources' topics in turn.

    Args:
        pipeline: the declaration.
        log: the log to append to.
        partitions: partitions per topic; the records of an input are distributed over them in turn.

    Raises:
        UsageError: an input is a pattern, which names no topic.
    """

    def __init__(self, pipeline: Pipeline, log: MemoryLog, partitions: int) -> None:
        self._log = log
        self._partitions = partitions
        self._fed: dict[str, int] = {}
        self.declare(pipeline)

    def declare(self, pipeline: Pipeline) -> None:
        """Sends to the inputs of a declaration from here on; creates the topics that do not exist yet.

        Raises:
            UsageError: an input is a pattern, which names no topic.
        """
        self._inputs = pipeline.inputs
        self._places = {name: _places(source, self._partitions) for name, source in pipeline.inputs.items()}
        self._fed = dict.fromkeys(self._places, 0) | self._fed
        counts: dict[str, int] = {}
        for tp in (tp for places in self._places.values() for tp in places):
            counts[tp.topic] = max(tp.partition + 1, counts.get(tp.topic, 0))
        sinks = [output.sink for output in pipeline.outputs.values() if output.sink is not None]
        sent = {sink.kafka_topic for sink in sinks if sink.kafka_topic is not None} - set(counts)
        there = self._log.topic_ids([*counts, *sent])
        for topic, count in [*sorted(counts.items()), *((topic, 1) for topic in sorted(sent))]:
            if topic not in there:
                self._log.create(topic, count)

    def send(self, record: object, timestamp_ms: int) -> TopicPartition:
        """Appends a record of a script; see `tidemark.testing.replay` for its forms.

        Args:
            record: the record.
            timestamp_ms: Kafka's timestamp, if the record does not say it.

        Raises:
            UsageError: the record belongs to no input, or to more than one; or there is no such partition.
        """
        found = self._addressed(record)
        name = str(found.source)
        sent = _sent(found.value, self._inputs[name])
        given = sent.key if found.key is None else found.key
        places, key = self._places[name], given.encode() if isinstance(given, str) else given
        # A message key selects the partition, as in a producer's partitioner: a key stays in one partition.
        at = self._fed[name] if key is None else sum(key)
        if found.partition is None:
            self._fed[name] += key is None
            place = places[at % len(places)]
        else:
            place = _place_of(name, places, found.partition)
        at_ms = timestamp_ms if sent.timestamp_ms is None else sent.timestamp_ms
        at_ms = at_ms if found.timestamp is None else epoch_ms(found.timestamp, "timestamp")
        self._log.append(place, sent.value, key=key, timestamp_ms=at_ms, headers=sent.headers)
        return place

    def event_time_of(self, record: object) -> datetime | None:
        """Returns the event time of a record that is an instance of its source's dataclass; None if it has none."""
        found = self._addressed(record)
        source, value = self._inputs[str(found.source)], found.value
        if type(value) is not source.record or source.event_time is None:
            return None
        for step in source.event_time.split("."):
            value = getattr(value, step, None)
        if not isinstance(value, datetime):
            return None
        return value if value.tzinfo is not None else value.replace(tzinfo=UTC)  # as records without a zone are read

    def _addressed(self, record: object) -> Record:
        if isinstance(record, tuple) and len(record) in (2, 3) and record[0] in self._places:
            return Record(value=record[1], key=record[2] if len(record) == 3 else None, source=record[0])
        found = record if isinstance(record, Record) else Record(value=record)
        if found.source is not None:
            if found.source not in self._inputs:
                raise UsageError(
                    f"no input {found.source!r}: {found!r}", next=f"name one of: {', '.join(self._inputs)}."
                )
            return found
        value = found.value
        names = [name for name, source in self._inputs.items() if type(value) is source.record] or list(self._inputs)
        if len(names) > 1:
            raise UsageError(
                f"which input does {record!r} belong to: {', '.join(names)}?",
                next="give a pair: (name, record).",
            )
        return replace(found, source=names[0])


def epoch_ms(at: datetime, name: str) -> int:
    """Returns a time in milliseconds since the epoch.

    Raises:
        UsageError: it has no time zone; the message names the argument.
    """
    if at.tzinfo is None:
        raise UsageError(f"{name}={at!r} has no time zone", next="give an aware datetime, such as one with tzinfo=UTC.")
    return (at - EPOCH) // MS


def _place_of(name: str, places: Sequence[TopicPartition], partition: int) -> TopicPartition:
    found = [tp for tp in places if tp.partition == partition]
    if len(found) != 1:
        held = ", ".join(map(str, places))
        raise UsageError(
            f"partition {partition} of input {name}, which has {held}",
            next="name one of them, or give the replay more partitions=.",
        )
    return found[0]


def _places(source: KafkaSource, partitions: int) -> list[TopicPartition]:
    if isinstance(source.topics, TopicPattern):
        raise UsageError("a TopicPattern names no topic to replay", next="give the pipeline's source topic names.")
    if isinstance(source.topics, frozenset):
        return sorted(source.topics)
    return [TopicPartition(t, n) for t in source.names for n in range(partitions)]


def _sent(record: object, source: KafkaSource) -> Sent:
    if record is None or isinstance(record, bytes):
        return Sent(value=record)
    return encode_record(source.format, source.schema, record)


# The checkpoint store in a dict, and a wrapper that loses replies, refuses calls and returns stale lists.
_PUTTING = Lock()
"""One lock for all instances, because several may share their objects."""


class Fault(Enum):
    """A fault of one call of a store."""

    LOST_REPLY = "lost_reply"
    """The put succeeds, but its reply is lost."""
    LOST_REQUEST = "lost_request"
    """The put fails, but the caller cannot know it."""
    REFUSED = "refused"
    """The call fails, and had no effect."""
    STALE = "stale"
    """A listing lacks its newest key."""


@dataclass
class MemoryStore:
    """The twin of every `CheckpointStore`; several instances may share `objects`, like a disk."""

    objects: dict[str, bytes] = field(default_factory=dict)

    def put_if_absent(self, key: str, body: bytes) -> PutOutcome:
        """See `ports.CheckpointStore`."""
        with _PUTTING:
            if key in self.objects:
                return PutOutcome.LOST
            self.objects[key] = body
            return PutOutcome.WON

    def get(self, key: str) -> bytes | None:
        """See `ports.CheckpointStore`."""
        return self.objects.get(key)

    def list(self, prefix: str) -> Sequence[str]:
        """See `ports.CheckpointStore`."""
        return sorted([key for key in tuple(self.objects) if key.startswith(prefix)])

    def stamps(self, prefix: str) -> Mapping[str, str]:
        """See `ports.caching.StampedStore`."""
        return {key: f"{crc32(self.objects[key])}" for key in MemoryStore.list(self, prefix)}


@dataclass(frozen=True)
class FaultyStore:
    """A store whose calls fail as `choose` decides.

    Attributes:
        inner: the store that does the work.
        choose: called with the operation (`put`, `get`, `list`) and the key or prefix; returns a fault, or None.
    """

    inner: CheckpointStore
    choose: Callable[[str, str], Fault | None]

    def put_if_absent(self, key: str, body: bytes) -> PutOutcome:
        """See `ports.CheckpointStore`."""
        fault = self.choose("put", key)
        if fault is Fault.REFUSED:
            raise _refused(key)
        if fault is Fault.LOST_REQUEST:
            raise UncertainPut(key)
        outcome = self.inner.put_if_absent(key, body)
        if fault is Fault.LOST_REPLY:
            raise UncertainPut(key)
        return outcome

    def get(self, key: str) -> bytes | None:
        """See `ports.CheckpointStore`."""
        if self.choose("get", key) is Fault.REFUSED:
            raise _refused(key)
        return self.inner.get(key)

    def list(self, prefix: str) -> Sequence[str]:
        """See `ports.CheckpointStore`."""
        found = self.inner.list(prefix)
        return found[:-1] if self.choose("list", prefix) is Fault.STALE else found


def _refused(key: str) -> StoreError:
    return StoreError(f"the store refused {key}", next="run the same command again.")


# Records that attempts and outboxes have sent, in lists: the twin of a producer.
_SAFE = "every completed checkpoint is intact; this one was not sealed."


class MemorySender:
    """The twin of `KafkaSender` and `KafkaOutbox`; messages that arrived stay, even if the attempt fails.

    Attributes:
        arrived: messages per topic, in order.
        accepts: how many more messages the broker accepts before it fails; None = no limit.
        largest: the largest size of key and value, in bytes, that each topic accepts.
        missing: topics that do not exist.
    """

    def __init__(self) -> None:
        self.arrived: dict[str, list[Message]] = {}
        self.accepts: int | None = None
        self.largest: dict[str, int] = {}
        self.missing: set[str] = set()

    def send(self, topic: str, messages: Iterable[Message]) -> int:
        """See `ports.Sender`."""
        there = self.arrived.setdefault(topic, [])
        sent = 0
        for message in messages:
            if topic in self.missing or (self.accepts is not None and self.accepts <= 0):
                raise BrokerError(
                    f"sending to topic {topic} stopped",
                    safe=_SAFE,
                    next="run the pipeline again: it sends all records again, with the same ids.",
                )
            if topic in self.largest and message.size > self.largest[topic]:
                raise record_refused(message, topic, "Broker: Message size too large", _SAFE)
            if self.accepts is not None:
                self.accepts -= 1
            there.append(message)
            sent += 1
        return sent


# Foreign tables in dicts: versions of rows by path; the twin of `adapters.foreign_tables`.
@dataclass
class MemoryForeignTables:
    """Tables that tests can overwrite, roll back and drop."""

    tables: dict[str, list[tuple[str, Sequence[Any]]]] = field(default_factory=dict)
    _created: int = 0

    def overwrite(self, path: str, records: Iterable[Any]) -> None:
        """Writes a new version with exactly these rows, which are instances of the declared record."""
        versions = self.tables.setdefault(path, [])
        if not versions:
            self._created += 1
        versions.append((versions[-1][0] if versions else f"table#{self._created}", tuple(records)))

    def roll_back(self, path: str) -> None:
        """Drops the newest version, like a table whose log was restored from a backup."""
        del self.tables[path][-1]

    def drop(self, path: str) -> None:
        """Deletes the table; the next `overwrite` creates a new one."""
        del self.tables[path]

    def newest(self, broadcast: Broadcast) -> TableVersion:
        """See `ports.ForeignTables`."""
        path = _path(broadcast)
        versions = self.tables.get(path)
        if not versions:
            raise NotFoundError(f"no Delta table at {path}", next="create it, or correct the path of the DeltaTable.")
        return TableVersion(id=versions[-1][0], version=len(versions) - 1)

    def rows(self, broadcast: Broadcast, at: TableVersion) -> Sequence[Mapping[str, Any]]:
        """See `ports.ForeignTables`."""
        versions = self.tables.get(_path(broadcast), [])
        if at.version >= len(versions) or versions[at.version][0] != at.id:
            raise DataLostError(
                f"data lost: version {at.version} of the table of broadcast state {broadcast.uid} is gone",
                safe="every completed checkpoint is intact; nothing was published.",
                next="run the pipeline again: it makes a new plan, with the newest version.",
            )
        dump = codec_of(record_shape(broadcast.source.record)).dump
        return checked_rows(broadcast, [dump(record) for record in versions[at.version][1]])


def _path(broadcast: Broadcast) -> str:
    if not isinstance(broadcast.source, DeltaTable):
        raise TypeError(f"{broadcast.uid} is read from Kafka")
    return broadcast.source.path


# Metrics and lineage for tests, which record all calls.
@dataclass
class MemoryMetrics:
    """See `ports.observing.Metrics`; keeps the newest gauges of every pipeline."""

    told: dict[str, dict[str, float]] = field(default_factory=dict)

    def tell(self, pipeline: str, gauges: Mapping[str, float]) -> None:
        """See `ports.observing.Metrics`."""
        self.told.setdefault(pipeline, {}).update(gauges)


@dataclass
class MemoryLineage:
    """See `ports.observing.LineageSink`; keeps all events in order."""

    events: list[LineageEvent] = field(default_factory=list)

    def announce(self, event: LineageEvent) -> None:
        """See `ports.observing.LineageSink`."""
        self.events.append(event)


# Time and random ids for tests: a clock that tests set, and ids from a counter.
@dataclass
class ManualClock:
    """A clock that does not advance until a test moves it."""

    ms: int = 0

    def now_ms(self) -> int:
        """See `ports.Clock`."""
        return self.ms

    def advance(self, ms: int) -> None:
        """Moves the clock forward."""
        self.ms += ms


@dataclass
class SequentialIds:
    """Write ids from a counter, so that a failed test can be repeated."""

    last: int = 0

    def __call__(self) -> str:
        """See `ports.WriteIds`."""
        self.last += 1
        return f"{self.last:032x}"
