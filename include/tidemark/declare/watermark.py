"""How a source declares its watermark: the time before which no more records are expected."""

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from tidemark.errors import DeclarationError
from tidemark.model.core.clocks import LOGICAL_TIME, WATERMARK, WatermarkRule

_MS = timedelta(milliseconds=1)
_UNITS = {
    "ms": _MS,
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}
_TEXT = re.compile(r"(\d{1,15})\s*(ms|s|m|h|d)")
_LONGEST = timedelta(days=36_500)


def check_clock(what: str, given: str) -> None:
    """Checks the clock that the frontier of an operator follows.

    Args:
        what: the operator and its parameter, for the message.
        given: its name.

    Raises:
        DeclarationError: there is no such clock.
    """
    if given not in (WATERMARK, LOGICAL_TIME):
        raise DeclarationError(f"{what}={given!r}", next='give "watermark" or "logical_time".')


def as_duration(what: str, given: str | timedelta, least: timedelta = timedelta(0)) -> timedelta:
    """Returns a duration that a declaration gives as a timedelta, or as a number with one of the units ms s m h d.

    >>> as_duration("delay", "90s")
    datetime.timedelta(seconds=90)

    Args:
        what: the parameter, for the message.
        given: the duration.
        least: the shortest one that is allowed.

    Raises:
        DeclarationError: it is no such text, shorter than `least`, longer than a century, or has microseconds.
    """
    found = given
    if isinstance(given, str):
        match = _TEXT.fullmatch(given.strip())
        found = given if match is None else min(int(match[1]) * (_UNITS[match[2]] / _MS), 1e15) * _MS
    if not isinstance(found, timedelta) or not least <= found <= _LONGEST or found % _MS:
        shortest = "" if least == timedelta(0) else f" of at least {least // _MS} ms"
        raise DeclarationError(
            f"{what}={given!r} is not a duration{shortest}",
            next='give a timedelta of whole milliseconds, or a text such as "90s", "5m", "1h" or "7d".',
        )
    return found


@dataclass(frozen=True)
class Watermark:
    """How far the records of a source are complete, in event time (Flink's WatermarkStrategy).

    After each checkpoint the watermark of the source is the smallest of its partitions' greatest event times, minus
    `delay`; it never falls. Event times ahead of the checkpoint's logical time count as that time.

    >>> from dataclasses import dataclass
    >>> from datetime import datetime
    >>> from tidemark import KafkaSource, Watermark
    >>> @dataclass(frozen=True)
    ... class Click:
    ...     user: str
    ...     at: datetime
    >>> KafkaSource("clicks", Click, event_time="at", watermark=Watermark(delay="5m")).watermark
    Watermark(delay='5m', idle_after='1h', combine='min')

    Attributes:
        delay: how late records of a partition may come (Flink's forBoundedOutOfOrderness): a timedelta, or a text with
            one of the units ms, s, m, h, d.
        idle_after: a partition that brought no record for this much logical time holds the watermark back no longer
            (Flink's withIdleness), unless the checkpoint left records of it in Kafka. None = it waits for every
            partition that ever had a record.
        combine: `min` of the partitions (default), or `max`, as the watermark by which state expires.

    Raises:
        DeclarationError: a duration is invalid, or `combine` is neither of the two.
    """

    delay: str | timedelta = "0s"
    idle_after: str | timedelta | None = "1h"
    combine: Literal["min", "max"] = "min"

    def __post_init__(self) -> None:
        if self.combine not in ("min", "max"):
            raise DeclarationError(f"combine={self.combine!r}", next='give "min" or "max".')
        as_duration("delay", self.delay)
        if self.idle_after is not None:
            as_duration("idle_after", self.idle_after, _MS)

    @property
    def rule(self) -> WatermarkRule:
        """The rule as plans record it."""
        idle = None if self.idle_after is None else as_duration("idle_after", self.idle_after, _MS) // _MS
        return WatermarkRule(
            delay_ms=as_duration("delay", self.delay) // _MS, idle_after_ms=idle, combine=str(self.combine)
        )
