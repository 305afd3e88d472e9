"""What a pipeline does with records: operators that keep state, and where the rows go that they emit."""

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
"""`function(key, records, remembered)`, perhaps with `broadcast` as fourth, and `*, operator_state`; see `Process`."""


@dataclass(frozen=True)
class Fold:
    """An operator that folds the records of a key into accumulators (Flink's ReducingState, AggregatingState).

    Attributes:
        uid: names the state; mandatory and unique (C6). State is found by pipeline name + uid, never by position.
        key_by: record field, or several, that make the key; a record in which one is null is a dead letter.
        state: the `state.Keyed` class.
        input: whose records: a source's name, or the uid of a `Process` that emits them; None = the only source.
        deletes: a record without a value deletes the key that its message key names (a compacted topic's tombstone);
            without this it is a dead letter.
        join: per uid of a broadcast state the record field, or several, that hold its key. Its row is then a field of
            the record: `key_by` and fields of the state may name `<uid>.<field>`, null where no row has the key. The
            version is that of the checkpoint's barrier, as for a `Process` (A11).
        was: the uid that the operator had before, where it was renamed: its state is carried over (C8).
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
                f"{self.uid}: {', '.join(wrong)}: state of a Process in a Fold",
                next="fold a record field, as in state.list('field'), or declare a Process.",
            )

    @property
    def joins(self) -> tuple[Join, ...]:
        """What it joins to its records; in order of their uids, because the order of a mapping decides nothing."""
        return tuple(Join(uid, (on,) if isinstance(on, str) else tuple(on)) for uid, on in sorted(self.join.items()))

    def bind(self, record: FieldType) -> OperatorSchema:
        """The stored schema over a record type, what is joined included.

        Raises:
            DeclarationError: a key or a field does not fit the record, two columns have one name, or a join is idle.
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
    """An operator whose function sees the records of a key in order, with what is remembered about it (A2-A4).

    The function gets the key (a tuple where it has several columns), an iterator of record instances in order of
    (topic, partition, offset), and an instance of the state class, whose fields it may read, assign, change and clear.
    It may yield instances of `emits`. A fourth parameter, `broadcast`, gets a mapping of each broadcast state's uid to
    its records by key. A keyword-only parameter, `operator_state`, gets an instance of the class of that name, whose
    lists belong to no key. An exception fails the checkpoint, naming key, partition and offset.

    Attributes:
        uid: as in `Fold`.
        key_by: as in `Fold`.
        state: the `state.Keyed` class, with fields `state.value`, `state.list`, `state.map`.
        function: plain Python.
        emits: dataclass of what it yields; None = it yields nothing.
        sink: where emitted rows go; None = only to operators that name this one as `input`.
        input: as in `Fold`.
        order: `offset`, or `event_time` for (event time, topic, partition, offset) within a checkpoint.
        on_error: `fail`, or `dead_letter`: a record whose processing raises is a dead letter and leaves no trace.
        max_state_bytes: a key whose state is larger is a `StateOverflowError` naming the key (A3, F3).
        operator_state: a `state.Operator` class: lists per parallel task (A9, A10); None = there are none.
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
                f"{self.uid}: {', '.join(wrong)}: state of a Fold in a Process",
                next="declare state.value, state.list() or state.map(), or declare a Fold.",
            )
        if not callable(self.function):
            raise DeclarationError(f"{self.uid}: function={self.function!r}", next="give a function.")
        if self.emits is not None:
            record_type(self.emits)
        if self.sink is not None and self.emits is None:
            raise DeclarationError(f"{self.uid}: a sink, but nothing is emitted", next="say what with `emits=`.")
        _check_lists(self)
        if self.sink is not None and self.emitted is not None:
            self.sink.check(self.uid, self.emitted)

    def bind(self, record: FieldType) -> OperatorSchema:
        """The stored schema over a record type; see `Fold.bind`."""
        keys = tuple(bind_key(self.uid, source, record) for source in self.key_by)
        fields = tuple(bind_process_field(self.uid, d) for d in self.state.descriptors)
        clock = one_clock(self.uid, fields)
        schema = OperatorSchema(self.uid, keys, fields, kind="process", clock=clock, was=self.was)
        return distinct_columns(self.uid, schema)

    @property
    def takes_broadcast(self) -> bool:
        """Whether the function has a fourth parameter without a default: what is broadcast."""
        found = signature(self.function).parameters.values()
        positional = [p for p in found if p.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)]
        return len(positional) > 3 and positional[3].default is Parameter.empty

    @property
    def lists(self) -> OperatorState:
        """The declared lists of its operator state, empty."""
        declared = () if self.operator_state is None else self.operator_state.descriptors
        lists = (OperatorList(name=d.name, mode=d.mode, element=d.element, was=d.was) for d in declared)
        return OperatorState(lists=tuple(lists))

    @property
    def emitted(self) -> FieldType | None:
        """The struct of what it emits."""
        return None if self.emits is None else record_type(self.emits)


Operator = Fold | Process


def _check(operator: Operator) -> None:
    # An empty uid is none: only `was` may be left out.
    for name in (operator.uid, operator.was) if operator.was else (operator.uid,):
        checked_name("uid", name)
    state = operator.state
    if not (isinstance(state, type) and issubclass(state, Keyed) and state is not Keyed):
        raise DeclarationError(f"{operator.uid}: {state!r} is no state class", next="derive it from state.Keyed.")
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
            f"{operator.uid}: the function takes operator_state, and none is declared",
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
