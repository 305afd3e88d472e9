"""Timers of one key while its functions run: which fires next, and how they merge with its records (adr/0056)."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from tidemark.declare.timer_options import TIMERS, takes, takes_more
from tidemark.model.checkpoint.emitted import timers_of
from tidemark.model.core.ttl import Now
from tidemark.model.schema.event_windows import from_ms, to_ms
from tidemark.model.schema.key_groups import key_hash
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.processing.cells import Cell
from tidemark.processing.clock import KeyClock
from tidemark.processing.live_operator_state import TaskState
from tidemark.processing.process_records import Emitted, PositionedRecord

if TYPE_CHECKING:
    from tidemark.model.checkpoint.plan import CheckpointPlan
    from tidemark.processing.processor import Processing

MOST_AT_ONE_TIME = 1000
"""Firings of a key at one time, after which a timer that is set for its own time again counts as an error."""
_LONG_AGO, _EVER = -(2**62), 2**62


class TooManyFiringsError(RuntimeError):
    """A key fires more timers at one time than allowed: `on_timer` sets them for a time that has come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FiringRules:
    """What decides which timers fire in a checkpoint; times are milliseconds since the epoch.

    Attributes:
        uid: the operator.
        before_ms: its frontier before the records; timers up to it have fired.
        after_ms: its frontier after them; timers up to it fire. None = there is none yet, and nothing fires.
        least_access_ms: a firing accesses state at its own time, but not before this.
        most_access_ms: and not after this.
        drains: whether only stored timers fire: those that are set are kept, or a daily one would fire up to the end of
            time (adr/0061).
    """

    uid: str
    before_ms: int | None
    after_ms: int | None
    least_access_ms: int
    most_access_ms: int
    drains: bool = False

    @classmethod
    def of(cls, plan: "CheckpointPlan", uid: str, now: Now) -> "FiringRules":
        """Returns the rules of a plan, once its records are read.

        Args:
            plan: the plan.
            uid: the operator.
            now: the clocks after the records.
        """
        least = plan.watermark_ms if plan.watermark_ms is not None else _LONG_AGO
        most = plan.logical_time_ms if plan.caps_event_time else _EVER
        if plan.schemas[uid].clock == "logical_time":
            least = most = plan.logical_time_ms
        return cls(
            uid=uid,
            before_ms=plan.frontier_before(uid),
            after_ms=now.frontiers.get(uid),
            least_access_ms=least,
            most_access_ms=most,
            drains=plan.drains,
        )

    @property
    def moves(self) -> bool:
        """Whether any time comes in this checkpoint."""
        return self.after_ms is not None and (self.before_ms is None or self.after_ms > self.before_ms)

    def is_due(self, at_ms: int) -> bool:
        """Whether a stored timer fires in this checkpoint."""
        return self.after_ms is not None and at_ms <= self.after_ms

    def settable(self, at_ms: int) -> int:
        """Returns the time of a timer that is set for a time: one that has passed counts as the next millisecond."""
        return max(at_ms, 0 if self.before_ms is None else self.before_ms + 1)

    def place(self, schema: OperatorSchema, key: tuple[Any, ...], at_ms: int) -> PositionedRecord:
        """Returns the place of a firing, from which emitted rows have their position."""
        of = timers_of(self.uid)
        path = (key_hash(key[: len(schema.own_keys)]),)
        access = max(self.least_access_ms, min(at_ms, self.most_access_ms))
        return PositionedRecord(of.topic, of.partition, at_ms, path, at_ms * 1000, access, None)


class TimerQueue:
    """The timers of a key, in the order in which they fire.

    Args:
        cell: the stored timers, as a map.
        rules: the rules of the checkpoint.
    """

    __slots__ = ("_at", "_fired", "_live", "_rules", "_waiting")

    def __init__(self, cell: Cell, rules: FiringRules) -> None:
        self._live, self._rules = cell.get(), rules
        self._at: dict[str, int] = {name: to_ms(at) for name, at in self._live.items()}
        self._waiting = sorted((at, name) for name, at in self._at.items())
        self._fired: dict[int, int] = {}

    def put(self, name: str, at: datetime) -> None:
        """Puts a timer, in place of one of the same name."""
        at_ms = self._rules.settable(to_ms(at))
        self._live[name] = from_ms(at_ms)
        self._at[name] = at_ms
        if not self._rules.drains:
            heappush(self._waiting, (at_ms, name))

    def remove(self, name: str) -> None:
        """Removes a timer, if there is one of the name."""
        if self._at.pop(name, None) is not None:
            del self._live[name]

    def remove_all(self) -> None:
        """Removes all timers."""
        for name in list(self._at):
            self.remove(name)

    def next_due(self, event_time_us: int | None = None) -> tuple[int, str] | None:
        """Returns time and name of the timer that fires next; None if none does.

        Args:
            event_time_us: only up to the event time of a record.
        """
        waiting = self._waiting
        while waiting and self._at.get(waiting[0][1]) != waiting[0][0]:
            heappop(waiting)  # replaced, cancelled or fired
        if not waiting or not self._rules.is_due(waiting[0][0]):
            return None
        return waiting[0] if event_time_us is None or waiting[0][0] * 1000 <= event_time_us else None

    def fire(self, due: tuple[int, str]) -> datetime:
        """Removes a timer that fires, and returns its time.

        Raises:
            TooManyFiringsError: too many have fired at that time.
        """
        at_ms, name = due
        self._fired[at_ms] = self._fired.get(at_ms, 0) + 1
        if self._fired[at_ms] > MOST_AT_ONE_TIME:
            at = from_ms(at_ms).isoformat()
            raise TooManyFiringsError(f"more than {MOST_AT_ONE_TIME:,} firings of one key at {at}")
        self.remove(name)
        return from_ms(at_ms)

    @property
    def fired(self) -> int:
        """How many timers have fired."""
        return sum(self._fired.values())

    def __str__(self) -> str:
        return ", ".join(f"{name}={at.isoformat()}" for name, at in self._live.items())


class KeyTimers:
    """`timers` in the functions of the author."""

    __slots__ = ("_queue",)

    def __init__(self, queue: TimerQueue) -> None:
        self._queue = queue

    def set(self, name: str, at: datetime) -> None:
        """Sets a timer, in place of one of the same name.

        Args:
            name: names it among the timers of the key.
            at: when it fires, with a zone; rounded down to milliseconds. A time that has passed means right away.

        Raises:
            TypeError: the name is no text, or the time is no datetime with a zone.
        """
        if not isinstance(at, datetime) or at.tzinfo is None:
            raise TypeError(f"timers.set({name!r:.80}, {at!r:.80}): give a datetime with a zone, as in UTC")
        self._queue.put(name, at)

    def cancel(self, name: str) -> None:
        """Takes a timer back, if there is one of the name."""
        self._queue.remove(name)

    def clear(self) -> None:
        """Takes all timers of the key back."""
        self._queue.remove_all()

    def __repr__(self) -> str:
        return f"timers({self._queue})"


class Upcoming:
    """The records of a key: the next one can be looked at before it is taken.

    Attributes:
        next: the next record; None = there are no more.
    """

    def __init__(self, records: Iterable[PositionedRecord]) -> None:
        self._records = iter(records)
        self.next: PositionedRecord | None = next(self._records, None)

    def take(self) -> PositionedRecord | None:
        """Returns the next record, and moves to the one behind it."""
        taken = self.next
        self.next = next(self._records, None)
        return taken

    def until_due(self, queue: TimerQueue) -> Iterator[PositionedRecord]:
        """Yields at least one record, then those before which no timer fires."""
        first = self.take()
        while first is not None:
            yield first
            if self.next is None or queue.next_due(self.next.event_time) is not None:
                return
            first = self.take()


@dataclass(frozen=True, slots=True, kw_only=True)
class Takes:
    """What a function of the author takes besides what each one does."""

    broadcast: bool
    timers: bool
    operator_state: bool

    @classmethod
    def of(cls, function: Callable[..., Any], positional: int) -> "Takes":
        """Looks at a function that has so many positional parameters anyway."""
        return cls(
            broadcast=takes_more(function, positional),
            timers=takes(function, TIMERS),
            operator_state=takes(function, "operator_state"),
        )


@dataclass(slots=True, kw_only=True)
class TimerMerge:
    """Merges the records of a key with its due timers, by event time.

    A timer fires before the records of its own time and of later ones; those that no record follows fire in the end.
    Behind a firing the function is called again, as it is after a barrier.

    Attributes:
        processing: the operator.
        key: the key.
        live: its state.
        clock: its clock.
        emitted: the rows that the functions yield are added here.
        task: the operator state of the task, if any.
    """

    processing: "Processing"
    key: tuple[Any, ...]
    live: Any
    clock: KeyClock
    emitted: list[Emitted]
    task: TaskState | None

    def pass_records(self, cell: Cell, records: Iterable[PositionedRecord]) -> int:
        """Runs both functions, and returns how many timers have fired.

        Raises:
            TooManyFiringsError: too many have fired at one time.
        """
        rules = self.processing.rules
        assert rules is not None  # noqa: S101  (for the type checker: it has timers)
        queue, upcoming = TimerQueue(cell, rules), Upcoming(records)
        timers = KeyTimers(queue)
        numbers: dict[int, tuple[PositionedRecord, list[Iterator[int]]]] = {}
        while True:
            coming = upcoming.next
            due = queue.next_due(None if coming is None else coming.event_time)
            if due is not None:
                if due[0] not in numbers:
                    place = rules.place(self.processing.state.schema, self.key, due[0])
                    numbers[due[0]] = place, self.processing.encoder.numbers()
                place, counters = numbers[due[0]]
                self.clock.reach(place)
                self._fire(queue.fire(due), due[1], timers, counters)
            elif coming is None:
                return queue.fired
            else:
                self.clock.reach(coming)
                self._pass(upcoming.until_due(queue), timers)

    def _fire(self, at: datetime, name: str, timers: KeyTimers, numbers: list[Iterator[int]]) -> None:
        operator = self.processing.operator
        assert operator.on_timer is not None  # noqa: S101  (for the type checker: it has timers)
        takes = self.processing.takes_of_timer
        handed = [self.processing.given_key(self.key), name, at, self.live]
        handed += [self.processing.broadcast] if takes.broadcast else []
        found = operator.on_timer(*handed, **self._named(takes, timers))
        self.processing.collect(found, self.clock, self.emitted, numbers)

    def _pass(self, stretch: Iterator[PositionedRecord], timers: KeyTimers) -> None:
        takes = self.processing.takes_of_function
        handed = [self.processing.given_key(self.key), self.processing.handed(self.clock, stretch), self.live]
        handed += [self.processing.broadcast] if takes.broadcast else []
        found = self.processing.operator.function(*handed, **self._named(takes, timers))
        self.processing.collect(found, self.clock, self.emitted)
        for _ in stretch:
            continue  # the records that the function has not read

    def _named(self, takes: Takes, timers: KeyTimers) -> dict[str, Any]:
        named: dict[str, Any] = {TIMERS: timers} if takes.timers else {}
        if self.task and takes.operator_state:
            named["operator_state"] = self.task.live
        return named
