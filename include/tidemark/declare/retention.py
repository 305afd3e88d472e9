"""Which completed checkpoints a timeline keeps: small rules joined by `|`.

A rule only decides; it deletes no file, object or table.

Ages and periods are measured in the logical times of checkpoints, which their plans have recorded, and "now" is the
logical time of the newest checkpoint. No wall clock is read, so evaluating a rule again gives the same answer, and a
pipeline that is idle loses no restore points. The logical time of a scheduled checkpoint is the end of its data
interval, that of a checkpoint on demand the moment it was planned; it never decreases. A checkpoint dated far in the
future makes all others old for `keep_for`, so combine it with `keep_last`.

Periods include their end but not their start, the mirror image of a data interval `[start, end)`: a checkpoint at
midnight contains the whole day before, and counts for that day.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count, groupby
from typing import Protocol
from zoneinfo import ZoneInfo

from tidemark.declare.time_zones import checked_zone
from tidemark.errors import DeclarationError

# The members of a retention rule: each decides, from newest to oldest, whether a checkpoint is kept.
Watch = Callable[[int], bool | None]
"""Called with logical times, newest first: is that checkpoint kept? None = neither it nor any older one is."""

MS = timedelta(milliseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MS = (datetime(9999, 12, 30, tzinfo=UTC) - _EPOCH) // MS
"""No time zone leads beyond the calendar from here. A person who means "all" may well give 9999-12-31 for `until`."""
_PERIODS: dict[str, Callable[[datetime], tuple[int, ...]]] = {
    "hourly": lambda at: (at.year, at.month, at.day, at.hour),
    "daily": lambda at: (at.year, at.month, at.day),
    "monthly": lambda at: (at.year, at.month),
}


class Member(Protocol):
    """One member of a retention; its text is its declaration."""

    def watch(self, newest: int) -> Watch:
        """Returns the decision function for one history.

        Args:
            newest: logical time of its newest checkpoint.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepLast:
    """Keeps the newest checkpoints."""

    n: int

    def __str__(self) -> str:
        return f"keep_last({self.n})"

    def watch(self, newest: int) -> Watch:
        """See `Member`."""
        seen = count(1)
        return lambda at: True if next(seen) <= self.n else None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepFor:
    """Keeps checkpoints up to a maximum age in logical time."""

    duration: timedelta

    def __str__(self) -> str:
        return f"keep_for({repr(self.duration).removeprefix('datetime.')})"

    def watch(self, newest: int) -> Watch:
        """See `Member`."""
        oldest = newest - self.duration // MS
        return lambda at: True if at >= oldest else None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepNewestOf:
    """Keeps the newest checkpoint of each of the last periods that have one."""

    period: str
    n: int
    timezone: str = "UTC"

    def __str__(self) -> str:
        zone = "" if self.timezone == "UTC" else f", timezone={self.timezone!r}"
        return f"{self.period}({self.n}{zone})"

    def watch(self, newest: int) -> Watch:
        """See `Member`."""
        zone, period_of = ZoneInfo(self.timezone), _PERIODS[self.period]
        seen: set[tuple[int, ...]] = set()

        def keeps(at: int) -> bool | None:
            # The last millisecond that the checkpoint contains: exactly at midnight it belongs to the day before.
            period = period_of((_EPOCH + min(at - 1, _LAST_MS) * MS).astimezone(zone))
            if period in seen:
                return False
            seen.add(period)
            return True if len(seen) <= self.n else None

        return keeps


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOnStop:
    """Keeps nothing by itself; see `Retention.in_force`."""

    def __str__(self) -> str:
        return "delete_on_stop()"

    def watch(self, newest: int) -> Watch:
        """See `Member`."""
        return lambda at: None


History = Iterable[tuple[int, int]]
"""Completed checkpoints as (id, logical time in milliseconds since the epoch), newest first."""

NEWEST = "newest"
"""The reason that keeps the newest completed checkpoint, whatever the rule."""

_NEXT = (
    "join members by |: Retention.keep_last(n), Retention.keep_for(timedelta), Retention.hourly(n),"
    " Retention.daily(n), Retention.monthly(n); Retention.delete_on_stop()."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subsumption:
    """The result of a retention on one timeline (Flink: newer checkpoints subsume older ones).

    Attributes:
        kept: id → all reasons that keep it, by ascending id: `newest`, members of the rule, the reason for a pin.
        released: ascending ids of the checkpoints that nothing keeps.
    """

    kept: Mapping[int, tuple[str, ...]]
    released: tuple[int, ...]

    @property
    def released_text(self) -> str:
        """`chk-1 to chk-9, chk-11`: runs without a kept checkpoint are joined; "none" if none is released."""
        everything = sorted([*self.kept, *self.released])
        spans = [list(span) for gone, span in groupby(everything, key=lambda number: number not in self.kept) if gone]
        ends = [[span[0]] if len(span) == 1 else [span[0], span[-1]] for span in spans]
        return ", ".join(" to ".join(f"chk-{number}" for number in pair) for pair in ends) or "none"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Retention:
    """A rule for which completed checkpoints to keep.

    >>> from tidemark import Retention
    >>> print(Retention.keep_last(10) | Retention.daily(30))
    keep_last(10) | daily(30)

    A checkpoint is kept if any member keeps it; the newest completed one is always kept. Declare it in a DAG file with
    `checkpoint_dag(..., retention=...)`.

    Attributes:
        members: in order of declaration, without duplicates. Use the named constructors to create them.
    """

    members: tuple[Member, ...]

    def __post_init__(self) -> None:
        if not self.members:
            raise DeclarationError("a Retention without members", next=_NEXT)

    @classmethod
    def keep_last(cls, n: int) -> "Retention":
        """Keeps the `n` newest checkpoints; `keep_last(2)` is Flink's num-retained = 2.

        Raises:
            DeclarationError: `n` is not a whole number of at least 1.
        """
        return cls(members=(KeepLast(n=_count("keep_last", n)),))

    @classmethod
    def keep_for(cls, duration: timedelta) -> "Retention":
        """Keeps checkpoints that are at most `duration` older than the newest one, by logical time.

        Raises:
            DeclarationError: `duration` is not a positive timedelta of whole milliseconds.
        """
        if not isinstance(duration, timedelta) or duration < MS or duration % MS:
            raise DeclarationError(
                f"keep_for({duration!r})",
                next="give a positive timedelta of whole milliseconds, as in timedelta(days=7).",
            )
        return cls(members=(KeepFor(duration=duration),))

    @classmethod
    def hourly(cls, n: int) -> "Retention":
        """Keeps the newest checkpoint of each of the last `n` hours (UTC) that have one.

        Raises:
            DeclarationError: `n` is not a whole number of at least 1.
        """
        return cls(members=(KeepNewestOf(period="hourly", n=_count("hourly", n)),))

    @classmethod
    def daily(cls, n: int, *, timezone: str = "UTC") -> "Retention":
        """Keeps the newest checkpoint of each of the last `n` days that have one; days are those of `timezone`.

        Raises:
            DeclarationError: `n` is not a whole number of at least 1, or the time zone does not exist.
        """
        return cls(
            members=(KeepNewestOf(period="daily", n=_count("daily", n), timezone=checked_zone("daily", timezone).key),)
        )

    @classmethod
    def monthly(cls, n: int, *, timezone: str = "UTC") -> "Retention":
        """Keeps the newest checkpoint of each of the last `n` months that have one; months are those of `timezone`.

        Raises:
            DeclarationError: `n` is not a whole number of at least 1, or the time zone does not exist.
        """
        return cls(
            members=(
                KeepNewestOf(period="monthly", n=_count("monthly", n), timezone=checked_zone("monthly", timezone).key),
            )
        )

    @classmethod
    def delete_on_stop(cls) -> "Retention":
        """Ignores all other members while the pipeline is stopped: Flink's DELETE_ON_CANCELLATION.

        Only pinned checkpoints remain, and the newest one, from which you can resume. Without this member a stop
        changes nothing: RETAIN_ON_CANCELLATION. As the only member, it keeps everything until the pipeline is stopped.
        """
        return cls(members=(DeleteOnStop(),))

    def in_force(self, *, stopped: bool) -> "Retention | None":
        """Returns the rule currently in force; None keeps everything.

        Args:
            stopped: whether the pipeline is stopped (`tidemark stop`).
        """
        last = DeleteOnStop()
        if last not in self.members:
            return self
        if stopped:
            return Retention(members=(last,))
        others = tuple(member for member in self.members if member != last)
        return Retention(members=others) if others else None

    def __or__(self, other: object) -> "Retention":
        if not isinstance(other, Retention):
            raise DeclarationError(f"{self} | {other!r}", next=_NEXT)
        return Retention(members=tuple(dict.fromkeys((*self.members, *other.members))))

    def __str__(self) -> str:
        return " | ".join(map(str, self.members))

    def __repr__(self) -> str:
        return " | ".join(f"Retention.{member}" for member in self.members)

    def subsume(self, checkpoints: Mapping[int, int], *, pinned: Mapping[int, str] | None = None) -> Subsumption:
        """Returns which checkpoints of one timeline are kept, with all reasons, and which are released.

        A pin keeps its checkpoint in addition to the rule and uses up no member: `keep_last(2)` keeps the two newest
        checkpoints, pinned or not.

        Args:
            checkpoints: id → logical time in milliseconds since the epoch, for every completed checkpoint. Of two with
                the same time, the one with the greater id is newer.
            pinned: id → the reason why it must be kept regardless of the rule. Ids of other timelines are ignored.
        """
        by_rule = self.select(sorted(checkpoints.items(), key=lambda item: (item[1], item[0]), reverse=True))
        pins = {number: (why,) for number, why in (pinned or {}).items()}
        reasons = {number: (*by_rule.get(number, ()), *pins.get(number, ())) for number in sorted(checkpoints)}
        return Subsumption(
            kept={number: found for number, found in reasons.items() if found},
            released=tuple(number for number, found in reasons.items() if not found),
        )

    def select(self, history: History) -> dict[int, tuple[str, ...]]:
        """Yields the checkpoints that the rule keeps, with reasons, newest first.

        It reads no more of the history than necessary: up to the first checkpoint from which no member keeps any more.

        Args:
            history: completed checkpoints of one timeline, newest first; their times never increase.
        """
        kept: dict[int, tuple[str, ...]] = {}
        watching: dict[str, Watch] = {}
        for number, at in history:
            watching = watching if kept else {str(member): member.watch(at) for member in self.members}
            found = {name: keeps(at) for name, keeps in watching.items()}
            watching = {name: keeps for name, keeps in watching.items() if found[name] is not None}
            reasons = (*(() if kept else (NEWEST,)), *(name for name, keeps in found.items() if keeps))
            if reasons:
                kept[number] = reasons
            elif not watching:
                break
        return kept


def restore_points(found: Iterable[tuple[int, int, str]]) -> History:
    """Yields the checkpoints that count for a rule: of each run only the newest one.

    Otherwise one backlog would push all older restore points out of `keep_last`.

    Args:
        found: completed checkpoints as (id, logical time, run or an empty text), newest first.

    >>> list(restore_points([(5, 9, "b"), (4, 9, "a"), (3, 9, "a"), (2, 9, ""), (1, 5, "")]))
    [(5, 9), (4, 9), (2, 9), (1, 5)]
    """
    newer = ""
    for number, at, run in found:
        if not run or run != newer:
            yield number, at
        newer = run


def as_retention(given: object) -> Retention | None:
    """Validates the `retention=` of a declaration; None keeps everything.

    Raises:
        DeclarationError: it is neither None nor a Retention.
    """
    if given is not None and not isinstance(given, Retention):
        raise DeclarationError(f"retention={given!r}", next=_NEXT)
    return given


def _count(name: str, n: object) -> int:
    if not isinstance(n, int) or isinstance(n, bool) or n < 1:
        raise DeclarationError(
            f"{name}({n!r})", next="give a whole number of at least 1; the newest checkpoint is always kept."
        )
    return n
