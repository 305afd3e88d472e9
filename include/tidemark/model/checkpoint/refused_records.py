"""Why a Kafka sink could not send, and the records that it skips permanently."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryFailure:
    """`delivery_failures/<sink>/<n>.json`: why records of a sink were not sent; written if the reason is new.

    Attributes:
        sink: its name.
        topic: where to.
        checkpoint: id of the checkpoint that was being sent; nothing behind it was.
        what: what happened.
        next: what helps.
        record: id of the record that Kafka refuses; empty where it refused none.
        size: bytes of its key and value.
        why: Kafka's words about the record.
        ahead: hash of the ids of the records ahead of it, which were all sent; empty where an attempt sends.
        at_ms: clock of the writer, when it happened first, for people.
    """

    sink: str
    topic: str
    checkpoint: int
    what: str
    next: str
    record: str
    size: int
    why: str
    ahead: str
    at_ms: int
    write_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedRecord:
    """`skips/<sink>/<hash of the id>.json`: a record that Kafka refuses and that a person has skipped.

    It has no payload, which an erasure could not reach; that stays in the outbox as long as its checkpoint does.

    Attributes:
        sink: name of the sink.
        record: id of the record.
        size: bytes of its key and value.
        why: the message from Kafka.
        owner: the person who skipped it.
        note: for people.
        at_ms: clock of the writer, for people.
    """

    sink: str
    record: str
    size: int
    why: str
    owner: str
    note: str
    at_ms: int
    write_id: str
