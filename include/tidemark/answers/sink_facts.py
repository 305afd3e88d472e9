"""Sinks: the records that wait to be sent, the last failure, and records that were skipped."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingRecords:
    """Records in the outbox, and since when the oldest of them waits."""

    checkpoints: Sequence[str]
    records: int
    since: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LastDeliveryFailure:
    """The last failure of a sink; `record` and `size` are set if Kafka refused a single record."""

    what: str
    next: str
    record: str | None
    size: int | None
    since: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkStatus:
    """A sink with the records that wait to be sent, and how many were skipped."""

    sink: str
    guarantee: str | None
    topic: str | None
    waiting: WaitingRecords
    failure: LastDeliveryFailure | None
    skipped: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedRecordFacts:
    """A record that Kafka refused; `why` is its reason."""

    sink: str
    record: str
    checkpoint: str
    timeline: str
    uid: str
    partition: str
    offset: int
    path: Sequence[int]
    size: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SkipFacts(RefusedRecordFacts):
    """A refused record, and whether its sink skips it now."""

    skipped: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedRecordFacts(RefusedRecordFacts):
    """A record that a sink skips, who decided that, and when."""

    owner: str
    note: str
    skipped_at: str
