"""Rows as records of a Kafka topic."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from tidemark.errors import DeclarationError, UsageError
from tidemark.model.checkpoint.messages import EmittedRow, Message
from tidemark.model.checkpoint.sinks import SinkTable
from tidemark.model.core.json_text import json_record, key_bytes
from tidemark.model.core.names import checked_name
from tidemark.model.core.types import FieldType
from tidemark.sinks.sink import AHEAD, OUTBOX, Services, Sink

_KINDS = {"exactly_once_by_id": "kafka", "at_least_once": "topic"}


@dataclass(frozen=True)
class KafkaSink(Sink):
    """Sends emitted rows to a Kafka topic, each with an id in the header `tidemark-id`.

    >>> from tidemark import KafkaSink
    >>> KafkaSink("alerts", "late-flights", key_by="tail_number").kafka_topic
    'late-flights'

    Attributes:
        name: name of the sink, unique in the pipeline.
        topic: topic for the records; it must exist.
        key_by: the emitted field that becomes the message key; None = no key.
        guarantee: with `exactly_once_by_id`, rows of completed checkpoints are sent from an outbox table once the
            manifest is written. After a crash some records may be sent again with the same id; consumers that
            deduplicate by id see each record once. With `at_least_once`, the attempt itself sends the rows, after the
            gate has passed and before the seal, and stores nothing. Consumers may see rows that belong to no completed
            checkpoint. A retry of the plan sends them again with the same id, a new plan of the same offsets with
            another id.
    """

    kinds = {"kafka": OUTBOX, "topic": replace(AHEAD, needs_topic=True)}

    topic: str
    key_by: str | None = None
    guarantee: Literal["exactly_once_by_id", "at_least_once"] = "exactly_once_by_id"

    def __post_init__(self) -> None:
        super().__post_init__()
        checked_name("topic", self.topic)
        if self.guarantee not in _KINDS:
            raise DeclarationError(
                f"sink {self.name}: guarantee={self.guarantee!r}", next=f"choose one of {', '.join(_KINDS)}."
            )

    @property
    def kind(self) -> str:
        """See `Sink`."""
        return _KINDS[self.guarantee]

    @property
    def kafka_topic(self) -> str | None:
        """See `Sink`."""
        return self.topic

    @property
    def destination(self) -> str:
        """See `Sink`."""
        return f"topic {self.topic}"

    def check(self, uid: str, emitted: FieldType) -> None:
        """See `Sink`."""
        names = [name for name, _ in emitted.fields]
        if self.key_by is not None and self.key_by not in names:
            raise DeclarationError(
                f"{uid}: key_by={self.key_by!r} of its sink is not an emitted field",
                next=f"name one of {', '.join(names)}.",
            )

    def stored(self, table: SinkTable) -> SinkTable:
        """See `Sink`; the fields are those of release 0.1."""
        return replace(table, topic=self.topic, key_by=self.key_by)

    @classmethod
    def thaw(cls, table: SinkTable) -> "KafkaSink | None":
        """See `Sink`; release 0.1 planned sinks without a topic on forks."""
        if table.topic is None:
            return None
        guarantee: Literal["exactly_once_by_id", "at_least_once"] = "exactly_once_by_id"
        if not cls.kinds[table.kind].keeps_rows:
            guarantee = "at_least_once"
        return cls(table.name, table.topic, table.key_by, guarantee)

    def on_fork(self) -> "KafkaSink":
        """See `Sink`: on a fork the rows that attempts would send wait in an outbox, and `promote` can send them."""
        return replace(self, guarantee="exactly_once_by_id")

    def write(self, rows: Iterable[EmittedRow], commit_id: str, services: Services) -> int:
        """See `Sink`: each row is a JSON object."""
        if services.kafka is None:
            raise UsageError(
                f"{self.name}: this process cannot send to Kafka", next="run the pipeline with tidemark run."
            )
        return services.kafka.send(self.topic, map(self._message, rows))

    def _message(self, row: EmittedRow) -> Message:
        key = None if self.key_by is None else key_bytes(row.fields[self.key_by])
        return Message(key=key, value=json_record(row.fields), id=row.id, sink=self.name)
