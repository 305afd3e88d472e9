"""Appends the records of a script to a `MemoryLog`, each to a topic of its input."""

from tidemark.declare.operators import Process
from tidemark.declare.pipeline import Pipeline
from tidemark.declare.sources import KafkaSource, TopicPattern
from tidemark.errors import UsageError
from tidemark.model.core.offsets import TopicPartition
from tidemark.testing.twin.log import MemoryLog


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
        self._inputs = pipeline.inputs
        self._places = {name: _places(source, partitions) for name, source in pipeline.inputs.items()}
        self._fed = dict.fromkeys(self._places, 0)
        counts: dict[str, int] = {}
        for tp in (tp for places in self._places.values() for tp in places):
            counts[tp.topic] = max(tp.partition + 1, counts.get(tp.topic, 0))
        for topic, count in sorted(counts.items()):
            log.create(topic, count)
        sinks = [o.sink for o in pipeline.operators if isinstance(o, Process) and o.sink is not None]
        for sent in {sink.kafka_topic for sink in sinks if sink.kafka_topic is not None} - set(counts):
            log.create(sent)

    def send(self, record: object, timestamp_ms: int) -> TopicPartition:
        """Appends a record of a script; see `tidemark.testing.replay` for its forms.

        Raises:
            UsageError: the record belongs to no input, or to more than one.
        """
        name, body, key = self._addressed(record)
        places = self._places[name]
        # A message key selects the partition, as in a producer's partitioner: a key stays in one partition.
        at = self._fed[name] if key is None else sum(key)
        self._fed[name] += key is None
        place = places[at % len(places)]
        self._log.append(place, _value(body, self._inputs[name]), key=key, timestamp_ms=timestamp_ms)
        return place

    def _addressed(self, record: object) -> tuple[str, object, bytes | None]:
        if isinstance(record, tuple) and len(record) in (2, 3) and record[0] in self._places:
            key = record[2] if len(record) == 3 else None
            return str(record[0]), record[1], key.encode() if isinstance(key, str) else key
        names = [name for name, source in self._inputs.items() if type(record) is source.record] or list(self._inputs)
        if len(names) > 1:
            raise UsageError(
                f"which input does {record!r} belong to: {', '.join(names)}?",
                next="give a pair: (name, record).",
            )
        return names[0], record, None


def _places(source: KafkaSource, partitions: int) -> list[TopicPartition]:
    if isinstance(source.topics, TopicPattern):
        raise UsageError("a TopicPattern names no topic to replay", next="give the pipeline's source topic names.")
    if isinstance(source.topics, frozenset):
        return sorted(source.topics)
    return [TopicPartition(t, n) for t in source.names for n in range(partitions)]


def _value(record: object, source: KafkaSource) -> bytes | None:
    return record if record is None or isinstance(record, bytes) else source.format.encode(record)
