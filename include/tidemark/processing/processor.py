"""Passes one key after another through a process function: records in, rows of state and emitted records out."""

import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import PurePath
from typing import Any

from tidemark.declare.operators import Process
from tidemark.declare.timer_options import HINT, TIMERS
from tidemark.errors import ProcessFunctionError, StateOverflowError
from tidemark.model.checkpoint.dead_letters import Reason
from tidemark.model.schema.event_windows import from_ms
from tidemark.model.schema.key_groups import key_group, key_text
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.processing.cells import Cell
from tidemark.processing.clock import KeyClock
from tidemark.processing.emitted_rows import RowEncoder
from tidemark.processing.live import StateResult, StateType, StoredRow
from tidemark.processing.live_operator_state import OperatorStateType, TaskState
from tidemark.processing.process_records import Emitted, FailedRecord, Output, PositionedRecord
from tidemark.processing.record_shapes import named_records
from tidemark.processing.shapes import Shape, shape_of
from tidemark.processing.timer_merge import FiringRules, Takes, TimerMerge
from tidemark.processing.value_codec import DoesNotFit

# Messages for a process function that fails, or leaves more state than allowed.
_SAFE = "every completed checkpoint is intact; nothing was published."
_REMEDY = "fix the function, or declare on_error='dead_letter', then run the pipeline again."
_LONGEST = 300
"""Maximum characters of an exception's own text in a message."""
_NEVER = -(2**62)
"""Milliseconds, before all others."""
_OURS = PurePath(__file__).parent.as_posix()


def key_words(key: Sequence[object]) -> str:
    """Returns a key for messages."""
    return ", ".join(map(key_text, key))


def function_error(
    uid: str, key: Sequence[object] | None, place: PositionedRecord, error: Exception
) -> ProcessFunctionError:
    """Returns the error for a function that raised; `key` is None if its operator has none."""
    steps = [s for s in traceback.extract_tb(error.__traceback__) if not _is_ours(s.filename)]
    at = f" ({steps[-1].name}, line {steps[-1].lineno})" if steps else ""
    kind, words = type(error).__name__, " ".join(str(error).split())[:_LONGEST]
    whose = ("flat map", "") if key is None else ("process", f" key ({key_words(key)}),")
    where, remedy = f"topic {place.topic}, partition {place.partition}, offset {place.offset}", _REMEDY
    if place.record is None:
        where, remedy = f"a timer of {from_ms(place.offset).isoformat()}", "fix on_timer, then run the pipeline again."
    made = ProcessFunctionError(
        f"{whose[0]} function failed: {uid}: {kind}: {words}{at}:{whose[1]} {where}", safe=_SAFE, next=remedy
    )
    made.key = "" if key is None else key_words(key)
    made.place = (place.topic, place.partition, place.offset, place.path)
    made.kind = kind
    made.trace = "".join([*traceback.format_list(steps), *traceback.format_exception_only(error)])
    return made


def overflow(uid: str, what: str) -> StateOverflowError:
    """Returns the error for a key whose state is too large."""
    return StateOverflowError(
        f"state overflow: {uid}: {what}",
        safe=_SAFE,
        next="let the function clear some state, or declare a wider type, a higher limit or max_state_bytes.",
    )


def _is_ours(file: str) -> bool:
    return PurePath(file).as_posix().startswith(_OURS)


Key = tuple[Any, ...]


def _first(records: Iterable[PositionedRecord]) -> tuple[PositionedRecord | None, Iterable[PositionedRecord]]:
    """Returns the first record, if any, and all of them."""
    if isinstance(records, list):
        return (records[0] if records else None), records
    waiting = iter(records)
    first = next(waiting, None)
    return first, (waiting if first is None else chain((first,), waiting))


def key_loads(paths: Iterable[str], record: Shape | None) -> tuple[Callable[[Any], Any] | None, ...]:
    """Returns, per key column, what makes its value of its stored form; empty if all are the same."""
    shapes = [None if record is None else record.at(path) for path in paths]
    loads = tuple(None if shape is None else shape.load for shape in shapes)
    return loads if any(loads) else ()


@dataclass(frozen=True, kw_only=True)
class Processing:
    """A process operator that is ready to run anywhere: all annotations are resolved.

    Attributes:
        operator: the declaration.
        state: type of its keys' state.
        encoder: its output.
        checkpoint: id of the new checkpoint.
        broadcast: records of broadcast states, by uid and key.
        lists: its operator state; None if it declares none.
        keys: per key column what makes the value that the function gets of its stored form; None = they are the same.
        rules: which timers fire; None if it has no timers.
    """

    operator: Process
    state: StateType
    encoder: RowEncoder
    checkpoint: int
    broadcast: Mapping[str, Mapping[Any, Any]] = field(default_factory=dict)
    lists: OperatorStateType | None = None
    keys: tuple[Callable[[Any], Any] | None, ...] = ()
    rules: FiringRules | None = None

    @classmethod
    def of(
        cls,
        operator: Process,
        schema: OperatorSchema,
        checkpoint: int,
        broadcast: Mapping[str, Mapping[Any, Any]] | None = None,
        lists: OperatorStateType | None = None,
        record: Shape | None = None,
    ) -> "Processing":
        """Binds a declaration to its stored schema; the shape of its records says what its keys are in Python."""
        hints = {d.name: d.hint for d in operator.state.descriptors}
        hints |= {} if schema.timers is None else {TIMERS: HINT}
        shapes = {name: shape_of(hint, f"{operator.uid}.{name}") for name, hint in hints.items()}
        return cls(
            operator=operator,
            state=StateType(operator.state, schema, shapes),
            encoder=RowEncoder.of(operator.outputs),
            checkpoint=checkpoint,
            broadcast=broadcast or {},
            lists=lists,
            keys=key_loads([k.source for k in schema.keys], record),
        )

    def process(self, key: Key, stored: Sequence[StoredRow], records: Iterable[PositionedRecord], out: Output) -> None:
        """Runs the function for one key.

        Args:
            key: its columns.
            stored: its stored rows that are values, only the newest of each; of the key itself and of map entries.
            records: in the operator's order, read one by one; none only if it has timers.
            out: the output is added here once the function has returned.

        Raises:
            ProcessFunctionError: the function raised, or yielded something other than its `emits` class.
            StateOverflowError: its state does not fit.
        """
        if self.operator.on_error == "fail":
            self._once(key, stored, records, out)
            return
        left = list(records)
        while left:
            try:
                self._once(key, stored, left, out)
            except ProcessFunctionError as error:
                bad = next(n for n, r in enumerate(left) if r[:4] == error.place)
                out.letters.append(FailedRecord(*left.pop(bad)[:4], Reason.PROCESS_FAILED.at(error.kind)))
            else:
                return

    def _once(self, key: Key, stored: Sequence[StoredRow], records: Iterable[PositionedRecord], out: Output) -> None:
        first, every = _first(records)
        clock = KeyClock(_NEVER if first is None or self.rules is not None else first.at, first)
        live, cells = self.state.open(stored, clock)
        emitted: list[Emitted] = []
        fired = 0
        try:
            if self.rules is not None:
                merge = TimerMerge(processing=self, key=key, live=live, clock=clock, emitted=emitted, task=out.task)
                fired = merge.pass_records(cells[TIMERS], every)
            elif first is not None:
                self._call(key, self.handed(clock, every), live, clock, emitted, out.task)
            came_to = self.state.settle(live, cells)
        except MemoryError:
            raise
        except Exception as error:
            if out.task is not None:
                out.task.undo()
            raise self._failed(key, clock.place, error) from error
        if out.task is not None:
            out.task.keep()
        if came_to.changed:
            self._refuse_large(key, cells, came_to.size)
            out.rows += self._rows(key, bool(stored), came_to)
        out.emitted += emitted
        out.fired += fired

    def _call(
        self,
        key: Key,
        records: Iterator[Any],
        live: Any,
        clock: KeyClock,
        emitted: list[Emitted],
        task: TaskState | None,
    ) -> None:
        handed = [self.given_key(key), records, live]
        if self._takes_broadcast:
            handed.append(self.broadcast)
        function = self.operator.function
        self.collect(function(*handed) if task is None else function(*handed, operator_state=task.live), clock, emitted)

    def collect(
        self,
        found: Iterable[Any] | None,
        clock: KeyClock,
        emitted: list[Emitted],
        numbers: list[Iterator[int]] | None = None,
    ) -> None:
        """Runs a function to its end, and numbers the rows that it yields.

        Args:
            found: what the function has returned.
            clock: has the record or the timer that the function is at.
            emitted: the rows are added here.
            numbers: those with which the rows of a timer continue.
        """
        if found is None:
            return
        place = None if numbers is None else clock.place
        numbers = numbers or self.encoder.numbers()
        for item in found:
            at = clock.place
            if at is not place:
                place, numbers = at, self.encoder.numbers()
            output, fields = self.encoder.encode(item)
            path = (*at.path, next(numbers[output]))
            emitted.append(Emitted(at.topic, at.partition, at.offset, path, at.event_time, fields, output))

    def handed(self, clock: KeyClock, records: Iterable[PositionedRecord]) -> Iterator[Any]:
        """Yields records as the function gets them, one by one; of several inputs each with the name of its input."""
        inputs = self.state.schema.co_inputs
        return named_records(inputs, clock.handed(records)) if inputs else clock.handed(records)

    def given_key(self, key: Key) -> Any:
        """Returns the key that the function gets: one value, or a tuple of several."""
        if self.keys:
            key = tuple(v if load is None else load(v) for v, load in zip(key, self.keys, strict=True))
        return key if len(key) > 1 else key[0]

    def _rows(self, key: Key, was_stored: bool, came_to: StateResult) -> list[tuple[Any, ...]]:
        """Returns the key's own row, then one row per changed entry; if nothing is left, tombstones of all of them.

        The key's tombstone alone is not enough: once the key returns and a compaction keeps only its newest row,
        entries of a deeper level would return with it.
        """
        if came_to.is_empty and not was_stored:
            return []
        group = key_group(key[: self._own_keys], self.state.schema.key_groups)
        kind = "tombstone" if came_to.is_empty else "value"
        rows = [(*key, *((None,) if self._has_maps else ()), *came_to.columns, kind, self.checkpoint, group)]
        for name, entry, plain, at in came_to.entries:
            held: list[Any] = [None] * self._width
            held[self._places[name] : self._places[name] + 3] = [entry, plain, at]
            kind = "tombstone" if at is None else "value"
            rows.append((*key, name, *held, kind, self.checkpoint, group))
        return rows

    def _refuse_large(self, key: Key, cells: Mapping[str, Cell], size: int) -> None:
        for name, limit in self._limits:
            length = cells[name].length
            if length > limit:
                what = f"{name} of key ({key_words(key)}) has {length:,} elements, its limit is {limit:,}"
                raise overflow(self.operator.uid, what)
        bound = self.operator.max_state_bytes
        if size > bound:
            what = f"key ({key_words(key)}) has about {size:,} bytes of state, the limit is {bound:,}"
            raise overflow(self.operator.uid, what)

    def _failed(self, key: Key, place: PositionedRecord, error: Exception) -> ProcessFunctionError | StateOverflowError:
        if isinstance(error, DoesNotFit) and self.operator.on_error == "fail":
            return overflow(self.operator.uid, f"key ({key_words(key)}): {error}")
        return function_error(self.operator.uid, key, place, error)

    # Facts about the declaration that every key needs, looked up once.
    @cached_property
    def _takes_broadcast(self) -> bool:
        return self.operator.takes_broadcast

    @cached_property
    def takes_of_function(self) -> Takes:
        """What the function takes besides key, records and state."""
        return Takes.of(self.operator.function, 3)

    @cached_property
    def takes_of_timer(self) -> Takes:
        """What `on_timer` takes besides key, name, time and state."""
        assert self.operator.on_timer is not None  # noqa: S101  (for the type checker: asked for with timers only)
        return Takes.of(self.operator.on_timer, 4)

    @cached_property
    def _limits(self) -> list[tuple[str, int]]:
        return [(f.name, f.limit) for f in self.state.schema.fields if f.process_kind.is_limited]

    @cached_property
    def _own_keys(self) -> int:
        return len(self.state.schema.own_keys)

    @cached_property
    def _has_maps(self) -> bool:
        return bool(self.state.schema.maps)

    @cached_property
    def _width(self) -> int:
        return sum(len(f.columns) for f in self.state.schema.fields)

    @cached_property
    def _places(self) -> dict[str, int]:
        """Returns where a field's columns begin among those of all fields."""
        places, at = {}, 0
        for f in self.state.schema.fields:
            places[f.name], at = at, at + len(f.columns)
        return places
