"""What attempts have sent, in lists: the twin of a producer."""

from collections.abc import Iterable

from tidemark.errors import BrokerError
from tidemark.model.messages import Message


class MemorySender:
    """The twin of `KafkaSender`; what arrived stays, whatever becomes of the attempt.

    Attributes:
        arrived: messages per topic, in order.
        accepts: how many more are taken before the broker fails; None = no bound.
    """

    def __init__(self) -> None:
        self.arrived: dict[str, list[Message]] = {}
        self.accepts: int | None = None

    def send(self, topic: str, messages: Iterable[Message]) -> int:
        """See `ports.Sender`."""
        there = self.arrived.setdefault(topic, [])
        sent = 0
        for message in messages:
            if self.accepts is not None and self.accepts <= 0:
                raise BrokerError(
                    f"sending to topic {topic} stopped",
                    safe="every completed checkpoint is intact; this one was not sealed.",
                    next="run the pipeline again: all records are sent again, with the same ids.",
                )
            if self.accepts is not None:
                self.accepts -= 1
            there.append(message)
            sent += 1
        return sent
