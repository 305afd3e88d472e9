"""What attempts and outboxes have sent, in lists: the twin of a producer."""

from collections.abc import Iterable

from tidemark.errors import BrokerError
from tidemark.model.checkpoint.messages import Message, refused

_SAFE = "every completed checkpoint is intact; this one was not sealed."


class MemorySender:
    """The twin of `KafkaSender` and `KafkaOutbox`; what arrived stays, whatever becomes of the attempt.

    Attributes:
        arrived: messages per topic, in order.
        accepts: how many more are taken before the broker fails; None = no bound.
        largest: per topic the bytes of key and value above which a record is refused.
        missing: topics that are not there.
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
                    next="run the pipeline again: all records are sent again, with the same ids.",
                )
            if topic in self.largest and message.size > self.largest[topic]:
                raise refused(message, topic, "Broker: Message size too large", _SAFE)
            if self.accepts is not None:
                self.accepts -= 1
            there.append(message)
            sent += 1
        return sent
