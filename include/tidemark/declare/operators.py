"""Operators: they keep state per key, and may emit rows to a sink or to other operators."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import Parameter, signature
from typing import Any, Literal

from tidemark.declare.operator_state import Operator as OperatorLists
from tidemark.errors import DeclarationError
from tidemark.model.checkpoint.operator_lists import OperatorList, OperatorState
from tidemark.model.core.names import checked_name
from tidemark.model.core.types import FieldType, record_type
from tidemark.model.schema.binding import (
    bind_field,
    bind_key,
    bind_process_field,
    distinct_columns,
    one_clock,
    refuse_idle,
)
from tidemark.model.schema.lookup_joins import Join
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.sinks.sink import Sink
from tidemark.state import Keyed

ProcessFunction = Callable[..., Iterable[Any] | None]
"""`function(key, records, state)`, optionally with `broadcast` as fourth parameter and `*, operator_state`."""


@dataclass(frozen=True)
class Fold:
    """Folds the records of each key into accumulators, like Flink's ReducingState and AggregatingState.

    >>> from dataclasses import dataclass
    >>> from tidemark import Fold, KafkaSource, Pipeline, state
    >>> @dataclass(frozen=True)
    ... class Flight:
    ...     tail_number: str
    ...     distance: int
    >>> class Aircraft(state.Keyed):
    ...     flights: int = state.count()
    ...     distance: int = state.sum("distance")
    >>> fold = Fold("aircraft", key_by="tail_number", state=Aircraft)
    >>> Pipeline(name="flights", source=KafkaSource("flights", Flight), operators=[fold]).uids
    ('aircraft',)

    Attributes:
        uid: names the state; mandatory and unique. Tidemark finds state by pipeline name and uid, never by position.
        key_by: the record field, or fields, that make the key; a record with a null in one of them is a dead letter.
        state: the `state.Keyed` class.
        input: the source by name, or the uid of a `Process` that emits the records; None = the only source.
        deletes: a record without a value deletes the key in its message key (a tombstone of a compacted topic); by
            default such a record is a dead letter.
        join: for the uid of each broadcast state to join, the record field or fields that hold its key. The joined row
            becomes a field of the record: `key_by` and state fields may use `<uid>.<field>`, which is null if no row
            has the key. Every record of a checkpoint sees the version at its barrier, as in a `Process`.
        was: the previous uid of a renamed operator: its state is carried over.
    """

    uid: str
    key_by: str | Sequence[str] = field(kw_only=True)
    state: type[Keyed] = field(kw_only=True)
    input: str | None = field(default=None, kw_only=True)
    deletes: bool = field(default=False, kw_only=True)
    join: Mapping[str, str | Sequence[str]] = field(default_factory=dict, kw_only=True, hash=False)
    was: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        _check(self)
        if not isinstance(self.join, Mapping):
            raise DeclarationError(
                f"{self.uid}: join={self.join!r}",
                next='map uids to record fields, as in join={"planes": "tail_number"}.',
            )
        object.__setattr__(self, "join", {join.uid: join.on for join in self.joins})
        wrong = [d.name for d in self.state.descriptors if d.is_process]
        if wrong:
            raise DeclarationError(
                f"{self.uid}: {', '.join(wrong)}: kinds of state for a Process in a Fold",
                next="fold a record field, as in state.list('field'), or declare a Process.",
            )

    @property
    def joins(self) -> tuple[Join, ...]:
        """The joins, ordered by uid, because the order of a mapping must not decide anything."""
        return tuple(Join(uid, (on,) if isinstance(on, str) else tuple(on)) for uid, on in sorted(self.join.items()))

    def bind(self, record: FieldType) -> OperatorSchema:
        """Returns the stored schema for a record type, including joined fields.

        Raises:
            DeclarationError: a key or field does not fit the record, two columns share a name, or a join is unused.
        """
        keys = tuple(bind_key(self.uid, source, record) for source in self.key_by)
        fields = tuple(bind_field(self.uid, d, record) for d in self.state.descriptors)
        clock = one_clock(self.uid, fields)
        schema = OperatorSchema(
            self.uid, keys, fields, clock=clock, deletes=self.deletes, joins=self.joins, was=self.was
        )
        return refuse_idle(self.uid, distinct_columns(self.uid, schema))


@dataclass(frozen=True)
class Process:
    """Passes the records of each key, in order, to your function, together with the state of the key.

    >>> from dataclasses import dataclass
    >>> from tidemark import KafkaSource, Pipeline, Process, state
    >>> @dataclass(frozen=True)
    ... class Trip:
    ...     bus: str
    ...     minutes_late: int
    >>> class Bus(state.Keyed):
    ...     delays: int = state.value(0)
    >>> def count_delays(bus, trips, remembered):
    ...     for trip in trips:
    ...         if trip.minutes_late > 5:
    ...             remembered.delays += 1
    ...             yield trip
    >>> process = Process("delays", key_by="bus", state=Bus, function=count_delays, emits=Trip)
    >>> Pipeline(name="trips", source=KafkaSource("trips", Trip), operators=[process]).uids
    ('delays',)

    The function gets the key (a tuple if it has several columns), an iterator of record instances ordered by (topic,
    partition, offset), and an instance of the state class. It may read, assign, change and clear the fields of the
    state, and yield instances of `emits`. If it has a fourth parameter, `broadcast`, it gets a mapping from the uid of
    each broadcast state to its records by key. If it has a keyword-only parameter, `operator_state`, it gets an
    instance of that class, whose lists belong to no key. An exception fails the checkpoint; the error names key,
    partition and offset.

    Attributes:
        uid: as in `Fold`.
        key_by: as in `Fold`.
        state: the `state.Keyed` class, with fields `state.value`, `state.list` and `state.map`.
        function: a plain Python function.
        emits: dataclass of the yielded instances; None = the function yields nothing.
        sink: where emitted rows go; None = only to operators that name this one as `input`.
        input: as in `Fold`.
        order: `offset`, or `event_time` for (event time, topic, partition, offset) within a checkpoint.
        on_error: `fail`, or `dead_letter`: a record that makes the function raise becomes a dead letter and changes
            nothing.
        max_state_bytes: a key with more state is a `StateOverflowError` that names the key.
        operator_state: a `state.Operator` class with lists per parallel task; None = there are none.
        was: as in `Fold`.
    """

    uid: str
    key_by: str | Sequence[str] = field(kw_only=True)
    state: type[Keyed] = field(kw_only=True)
    function: ProcessFunction = field(kw_only=True)
    emits: type | None = field(default=None, kw_only=True)
    sink: Sink | None = field(default=None, kw_only=True)
    input: str | None = field(default=None, kw_only=True)
    order: Literal["offset", "event_time"] = field(default="offset", kw_only=True)
    on_error: Literal["fail", "dead_letter"] = field(default="fail", kw_only=True)
    max_state_bytes: int = field(default=16 * 2**20, kw_only=True)
    operator_state: type[OperatorLists] | None = field(default=None, kw_only=True)
    was: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        _check(self)
        wrong = [d.name for d in self.state.descriptors if not d.is_process]
        if wrong:
            raise DeclarationError(
                f"{self.uid}: {', '.join(wrong)}: kinds of state for a Fold in a Process",
                next="declare state.value, state.list() or state.map(), or declare a Fold.",
            )
        if not callable(self.function):
            raise DeclarationError(f"{self.uid}: function={self.function!r}", next="give a function.")
        if self.emits is not None:
            record_type(self.emits)
        if self.sink is not None and self.emits is None:
            raise DeclarationError(
                f"{self.uid}: a sink, but nothing is emitted", next="declare the dataclass with `emits=`."
            )
        _check_lists(self)
        if self.sink is not None and self.emitted is not None:
            self.sink.check(self.uid, self.emitted)

    def bind(self, record: FieldType) -> OperatorSchema:
        """Returns the stored schema for a record type; see `Fold.bind`."""
        keys = tuple(bind_key(self.uid, source, record) for source in self.key_by)
        fields = tuple(bind_process_field(self.uid, d) for d in self.state.descriptors)
        clock = one_clock(self.uid, fields)
        schema = OperatorSchema(self.uid, keys, fields, kind="process", clock=clock, was=self.was)
        return distinct_columns(self.uid, schema)

    @property
    def takes_broadcast(self) -> bool:
        """Whether the function has a fourth parameter without a default, for broadcast states."""
        found = signature(self.function).parameters.values()
        positional = [p for p in found if p.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)]
        return len(positional) > 3 and positional[3].default is Parameter.empty

    @property
    def lists(self) -> OperatorState:
        """The declared lists of operator state, without elements."""
        declared = () if self.operator_state is None else self.operator_state.descriptors
        lists = (OperatorList(name=d.name, mode=d.mode, element=d.element, was=d.was) for d in declared)
        return OperatorState(lists=tuple(lists))

    @property
    def emitted(self) -> FieldType | None:
        """The struct of the emitted dataclass."""
        return None if self.emits is None else record_type(self.emits)


Operator = Fold | Process


def _check(operator: Operator) -> None:
    # An empty uid is invalid; only `was` may be empty.
    for name in (operator.uid, operator.was) if operator.was else (operator.uid,):
        checked_name("uid", name)
    state = operator.state
    if not (isinstance(state, type) and issubclass(state, Keyed) and state is not Keyed):
        raise DeclarationError(f"{operator.uid}: {state!r} is not a state class", next="derive it from state.Keyed.")
    if not state.descriptors:
        raise DeclarationError(
            f"{operator.uid}: {state.__name__} remembers nothing",
            next="declare a field, as in `n: int = state.count()`.",
        )
    keys = (operator.key_by,) if isinstance(operator.key_by, str) else tuple(operator.key_by)
    if not keys or len(set(keys)) != len(keys):
        raise DeclarationError(
            f"{operator.uid}: key_by={operator.key_by!r}", next="name one record field or several different ones."
        )
    object.__setattr__(operator, "key_by", keys)


def _check_lists(operator: Process) -> None:
    declared = operator.operator_state
    found = signature(operator.function).parameters.values()
    takes = any(p.name == "operator_state" and p.kind is Parameter.KEYWORD_ONLY for p in found)
    if declared is None and takes:
        raise DeclarationError(
            f"{operator.uid}: the function takes operator_state, but none is declared",
            next="declare it: Process(..., operator_state=...), a class derived from state.Operator.",
        )
    if declared is None:
        return
    if not (isinstance(declared, type) and issubclass(declared, OperatorLists) and declared.descriptors):
        raise DeclarationError(
            f"{operator.uid}: operator_state={declared!r}",
            next="give a class derived from state.Operator, with at least one list.",
        )
    if not takes:
        raise DeclarationError(
            f"{operator.uid}: the function does not take its operator state",
            next="give it a keyword-only parameter: def function(key, records, remembered, *, operator_state).",
        )
