"""Windows of a fold: how they are declared, refused options, and the row of a closed window."""

from collections.abc import Mapping
from dataclasses import dataclass, field, make_dataclass, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any

from tidemark.declare.outputs import check_outputs
from tidemark.declare.time_zones import checked_zone, utc_offsets
from tidemark.declare.watermark import as_duration, check_clock
from tidemark.errors import DeclarationError
from tidemark.model.core.clocks import WATERMARK
from tidemark.model.core.types import FieldType, Precision
from tidemark.model.schema.day_windows import DayWindows
from tidemark.model.schema.event_windows import SessionWindows, SlidingWindows, StoredWindow, TumblingWindows

if TYPE_CHECKING:
    from tidemark.declare.operators import Fold
    from tidemark.model.schema.operator_schema import OperatorSchema

_MS, _DAY = timedelta(milliseconds=1), timedelta(days=1)
_MOST_WINDOWS = 10_000


@dataclass(frozen=True)
class Tumbling:
    """Windows of one length that follow each other without a gap (Flink's TumblingEventTimeWindows).

    >>> from tidemark import Tumbling
    >>> Tumbling("1h").stored.size_ms
    3600000
    >>> Tumbling("1d", timezone="Europe/Berlin").stored.shown
    'windows of 1 day in Europe/Berlin'

    Attributes:
        size: the length, a timedelta or a text with one of the units ms, s, m, h, d. Windows begin at its multiples
            since 1970-01-01 UTC.
        timezone: a name of the IANA time zone database; then `size` is a number of days, and windows begin with the
            local date, so that a day may have 23 or 25 hours. The first plan freezes the UTC offsets of the zone from
            2000 to 2050: a later release of the time zone data does not move windows, and before and after these years
            the first and the last offset count.

    Raises:
        DeclarationError: the size is no duration of at least a millisecond, or in a time zone not one of whole days;
            there is no such time zone, or this machine has no time zone data.
    """

    size: str | timedelta
    timezone: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        size = as_duration("size", self.size, _MS)
        if self.timezone is not None:
            if size % _DAY:
                raise DeclarationError(
                    f"size={self.size!r}, timezone={self.timezone!r}: only whole days have a time zone",
                    next='give "1d" or another number of days, or leave timezone= out.',
                )
            checked_zone("Tumbling", self.timezone)

    @property
    def stored(self) -> StoredWindow:
        """The windows as schemas store them."""
        size = as_duration("size", self.size, _MS)
        if self.timezone is None:
            return TumblingWindows(size_ms=size // _MS)
        zone = checked_zone("Tumbling", self.timezone)
        return DayWindows(days=size // _DAY, timezone=zone.key, offsets=utc_offsets(zone))


@dataclass(frozen=True)
class Sliding:
    """Windows of one length that begin at regular times, so that they overlap (Flink's SlidingEventTimeWindows).

    A record counts in all windows that hold its time, and in those of them that are still open if it comes late. What
    is stored are panes, each for several windows.

    >>> from tidemark import Sliding
    >>> Sliding("1h", every="5m").stored.shown
    'sliding windows of 3600000 ms every 300000 ms'

    Attributes:
        size: the length, as in `Tumbling`.
        every: the distance of two starts, at most `size`. Windows begin at its multiples since 1970-01-01 UTC.

    Raises:
        DeclarationError: one is no duration of at least a millisecond, `every` is longer than `size`, or each record
            would count in more than 10,000 windows.
    """

    size: str | timedelta
    every: str | timedelta = field(kw_only=True)

    def __post_init__(self) -> None:
        size, every = as_duration("size", self.size, _MS), as_duration("every", self.every, _MS)
        if every > size:
            raise DeclarationError(
                f"every={self.every!r}, size={self.size!r}: records between two windows would count in none",
                next="give every= at most the size.",
            )
        if size // every > _MOST_WINDOWS:
            raise DeclarationError(
                f"every={self.every!r}, size={self.size!r}: each record would count in {size // every:,} windows",
                next=f"give a longer every=, for at most {_MOST_WINDOWS:,}.",
            )

    @property
    def stored(self) -> StoredWindow:
        """The windows as schemas store them."""
        size, every = (as_duration("", text, _MS) // _MS for text in (self.size, self.every))
        return SlidingWindows(size_ms=size, every_ms=every)


@dataclass(frozen=True)
class Session:
    """Windows of a key that end when it has had no record for a while (Flink's EventTimeSessionWindows).

    A session begins with a record and ends `gap` after its last one; records of a key that are less than that apart
    belong to one session, whatever checkpoints read them. A record before the frontier is late, so give a `lateness`
    of `gap` if records that could still extend an open session must be accepted as in Flink.

    >>> from tidemark import Session
    >>> Session("30m").stored.shown
    'sessions with a gap of 1800000 ms'

    Attributes:
        gap: how long, as in `Tumbling`.

    Raises:
        DeclarationError: the gap is no duration of at least a millisecond.
    """

    gap: str | timedelta

    def __post_init__(self) -> None:
        as_duration("gap", self.gap, _MS)

    @property
    def stored(self) -> StoredWindow:
        """The windows as schemas store them."""
        return SessionWindows(gap_ms=as_duration("gap", self.gap, _MS) // _MS)


Window = Tumbling | Sliding | Session


@dataclass(frozen=True)
class ClosedRow:
    """Stands for the row of a closed window until a pipeline knows its columns."""


IS_FINAL = "is_final"
"""The column of rows with `emit="update"`: whether the window has closed."""


def late_output(uid: str) -> str:
    """Returns the name of the output of late records."""
    return f"{uid}.late"


def lateness_ms(uid: str, given: str | timedelta) -> int:
    """Returns a declared lateness in milliseconds.

    Raises:
        DeclarationError: it is no duration.
    """
    return as_duration(f"{uid}: lateness", given) // _MS


def check_window(fold: "Fold") -> None:
    """Checks what a fold declares of windows.

    Raises:
        DeclarationError: an option needs a window, or does not go with one; the message names it.
    """
    lateness = lateness_ms(fold.uid, fold.lateness)
    if fold.window is None:
        given = {
            "lateness": lateness,
            "closes_by": fold.closes_by != WATERMARK,
            "sink": fold.sink,
            "emit": fold.emit != "final",
            "late": fold.late,
        }
        if named := [name for name, is_given in given.items() if is_given]:
            raise DeclarationError(
                f"{fold.uid}: {named[0]}= without a window", next='give window=Tumbling("1h"), or leave it out.'
            )
        return
    if not isinstance(fold.window, Window):
        raise DeclarationError(f"{fold.uid}: window={fold.window!r}", next='give a window, as in Tumbling("1h").')
    check_clock(f"{fold.uid}: closes_by", fold.closes_by)
    expiring = [d.name for d in fold.state.descriptors if d.ttl is not None]
    refused = {
        "deletes=True": (fold.deletes, "the message key of a delete names no window"),
        f"a ttl ({', '.join(expiring)})": (expiring, "a window ends the life of its row itself"),
    }
    for what, (is_given, why) in refused.items():
        if is_given:
            raise DeclarationError(f"{fold.uid}: {what} with a window: {why}", next="leave one of them out.")
    _check_emit(fold)


def _check_emit(fold: "Fold") -> None:
    if fold.emit not in ("final", "update"):
        raise DeclarationError(f"{fold.uid}: emit={fold.emit!r}", next='give "final" or "update".')
    if fold.emit == "final":
        return
    if fold.sink is None:
        raise DeclarationError(
            f'{fold.uid}: emit="update" without a sink: operators get final rows only', next="give sink=, or omit it."
        )
    if not fold.sink.traits.is_transactional:
        raise DeclarationError(
            f'{fold.uid}: emit="update" to a {type(fold.sink).__name__}',
            next="give a DeltaSink: its readers can choose the newest row of a window.",
        )
    if isinstance(fold.window, Session):
        raise DeclarationError(
            f'{fold.uid}: emit="update" with sessions: two that become one would have to take rows back',
            next="omit it, or use Tumbling or Sliding.",
        )
    if any(d.name == IS_FINAL for d in fold.state.descriptors):
        raise DeclarationError(
            f'{fold.uid}: emit="update" and a field {IS_FINAL}, a column of its rows', next="rename the field."
        )


def with_closed_row(fold: "Fold", schema: "OperatorSchema", record: type) -> "Fold":
    """Returns a fold whose `row` has the columns of a window: key, bounds, the fields of its state, and `is_final`.

    Args:
        fold: the fold.
        schema: its stored schema.
        record: the class of its records, which late ones keep.

    Raises:
        DeclarationError: a sink does not fit the row.
    """
    hints: dict[str, Any] = {key.name: _python_type(key.type) for key in schema.keys}
    hints |= {d.name: d.hint for d in fold.state.descriptors}
    hints |= {IS_FINAL: bool} if fold.emit == "update" else {}
    # Functions that read the rows travel to workers, and everything from the module of the author goes by value.
    home = {"__module__": fold.state.__module__}
    name = "".join(p.title() for p in fold.uid.split("_"))
    made, found = make_dataclass(name, [*hints.items()], frozen=True, namespace=home), replace(fold)
    object.__setattr__(found, "row", made)
    object.__setattr__(found, "late_row", record)
    check_outputs(found.uid, found.outputs)
    return found


_TYPES: Mapping[str, type] = {
    "str": str, "int": int, "bool": bool, "date": date, "timestamp": datetime,
}  # fmt: skip


def _python_type(of: FieldType) -> Any:
    """The annotation of a key column; Enums, UUIDs and times have the type in which they are stored."""
    return Annotated[Decimal, Precision(of.digits, of.scale)] if of.kind == "decimal" else _TYPES[of.kind]
