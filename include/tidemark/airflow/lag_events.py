"""Decides when unread records start a DAG run: a pure function of the lag, the rule, and the last decision."""

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Protocol

FIRST_REPEAT = timedelta(seconds=30)
LAST_REPEAT = timedelta(minutes=10)
"""An event that led to no checkpoint is repeated after 30 seconds, then after twice as long, up to ten minutes."""


class SeenLag(Protocol):
    """What the decision needs to know of a lag; see `observability.Lag`."""

    @property
    def position(self) -> str:
        """Identifies the offsets at which the next checkpoint begins."""

    @property
    def unread(self) -> int:
        """How many offsets lie behind these."""

    @property
    def is_overdue(self) -> bool:
        """Whether an unread record is older than `max_wait`, by its timestamp."""

    @property
    def stopped(self) -> bool:
        """Whether the pipeline is stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LagRule:
    """When a lag is due; at least one of the two is given.

    Attributes:
        min_records: so many unread records are due.
        max_wait_ms: a single unread record is due after so many milliseconds.
    """

    min_records: int | None = None
    max_wait_ms: int | None = None

    def is_due(self, lag: SeenLag, waited_ms: int) -> bool:
        """Whether the lag should start a run.

        Args:
            lag: the lag now.
            waited_ms: for how long there have been unread records at its position.
        """
        if lag.unread < 1:
            return False
        enough = self.min_records is not None and lag.unread >= self.min_records
        # A wrong timestamp can make a record look young for ever, so the time since it was seen counts too.
        return enough or (self.max_wait_ms is not None and (lag.is_overdue or waited_ms >= self.max_wait_ms))


@dataclass(frozen=True, slots=True, kw_only=True)
class LagMemory:
    """What a poller remembers between two looks.

    Attributes:
        position: the position of the last lag.
        since_ms: when unread records were first seen there; None if there were none.
        events: how many events were sent at this position.
        event_ms: when the last of them was sent.
    """

    position: str = ""
    since_ms: int | None = None
    events: int = 0
    event_ms: int = 0


def decide_event(rule: LagRule, lag: SeenLag, memory: LagMemory, now_ms: int) -> tuple[bool, LagMemory]:
    """Decides whether to send an event now. Call it only while no DAG run is queued or running.

    After an event there is no second one until a checkpoint, or a restore, has changed the position; neither while
    records arrive. If the position stays, the event was lost (Airflow drops the events of a paused DAG) or its run
    failed: then it is repeated, ever less often.

    Args:
        rule: when a lag is due.
        lag: the lag now.
        memory: the result of the last decision.
        now_ms: the time, in milliseconds; if the clock was set back, waiting begins again.

    Returns:
        Whether to send an event, and what to remember.
    """
    if lag.position != memory.position:
        memory = LagMemory(position=lag.position)
    if lag.stopped or lag.unread < 1:
        return False, LagMemory(position=lag.position)
    since_ms = now_ms if memory.since_ms is None else min(memory.since_ms, now_ms)
    memory = replace(memory, since_ms=since_ms, event_ms=min(memory.event_ms, now_ms))
    if not rule.is_due(lag, now_ms - since_ms):
        return False, memory
    if memory.events and now_ms - memory.event_ms < repeat_ms(memory.events):
        return False, memory
    return True, replace(memory, events=memory.events + 1, event_ms=now_ms)


def repeat_ms(events: int) -> int:
    """Returns how long to wait after the last of so many events before it is repeated, in milliseconds."""
    first, last = FIRST_REPEAT // timedelta(milliseconds=1), LAST_REPEAT // timedelta(milliseconds=1)
    return last if events > 16 else min(last, first << (events - 1))
