"""Operators: they keep state per key, and may emit rows to a sink or to other operators."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from tidemark.declare.flat_map import FlatMap
from tidemark.declare.interval_join import IntervalJoin
from tidemark.declare.keyed_state import Keyed
from tidemark.declare.operator_state import Operator as OperatorLists
from tidemark.declare.operator_state import check_lists
from tidemark.declare.outputs import Emits, EmittedOutput, Reads, check_outputs, declared_outputs, normal_reads
from tidemark.declare.publications import Publication, named
from tidemark.declare.timer_options import check_timers, takes_more, timer_field
from tidemark.declare.windows import ClosedRow, Window, check_window, late_output, lateness_ms
from tidemark.errors import DeclarationError
from tidemark.model.checkpoint.segments import OperatorList, OperatorState
from tidemark.model.core.names import checked_name, is_field
from tidemark.model.core.ttl import Clock
from tidemark.model.core.types import KEY_KINDS, KEY_WORDS, FieldType, holds_map
from tidemark.model.kinds.base.kind import StateDescriptor
from tidemark.model.portable_sql.record_expression import bind_expression, bind_key_type, bind_where
from tidemark.model.schema.lookup_joins import Join
from tidemark.model.schema.operator_schema import KeyColumn, OperatorSchema, StoredField, window_columns

if TYPE_CHECKING:
    from tidemark.model.kinds.base.kind import Input
    from tidemark.sinks.sink import Sink


# Binds a declaration to a record type: returns the stored schema, or raises why it does not fit.
def distinct_columns(uid: str, schema: OperatorSchema) -> OperatorSchema:
    """Returns the schema if no two columns of its table have the same name, ignoring case.

    Raises:
        DeclarationError: two do; the message names them.
    """
    columns = [k.name for k in schema.keys] + [name for f in schema.fields for name, _ in f.columns]
    lowered = [c.lower() for c in columns]
    twice = sorted({c for c in lowered if lowered.count(c) > 1})
    if twice:
        raise DeclarationError(f"{uid}: two columns are called {', '.join(twice)}", next="rename the state field.")
    return schema


def one_clock(uid: str, fields: Sequence[StoredField]) -> Clock:
    """Returns the clock of an operator's access times.

    Raises:
        DeclarationError: its fields name different clocks.
    """
    clocks: list[Clock] = sorted({f.ttl.clock for f in fields if f.ttl is not None})
    if len(clocks) > 1:
        raise DeclarationError(
            f"{uid}: ttl on {' and on '.join(clocks)}", next="use one clock for all fields of an operator."
        )
    return clocks[0] if clocks else "event_time"


def refuse_idle(where: str, schema: OperatorSchema) -> OperatorSchema:
    """Returns the schema if every join is used.

    Raises:
        DeclarationError: a join is not used by a key or a field; the message names it.
    """
    used = schema.joined_by([*schema.deciding_paths, *(path for f in schema.fields for path in f.inputs)])
    for join in schema.joins:
        if join not in used:
            raise DeclarationError(
                f"{where}: join={join.uid!r}: no key, condition or field uses it",
                next=f"key by {join.uid}.<field>, fold a field of it, or remove the join.",
            )
    return schema


def bind_key(where: str, source: str, record: FieldType) -> KeyColumn:
    """Returns the key column for a record path.

    Raises:
        DeclarationError: the field does not exist, or its type cannot be a key.
    """
    found = record.field_at(source)
    if found is None or found.kind not in KEY_KINDS:
        problem = "no such field in the record" if found is None else f"a {found.kind} cannot be a key"
        is_float = found is not None and found.kind == "float"
        exact = "; a number with a fraction as Annotated[Decimal, Precision(10, 2)]" if is_float else ""
        raise DeclarationError(f"{where}: key_by={source!r}: {problem}", next=f"key by {KEY_WORDS}{exact}.")
    return KeyColumn(source.rpartition(".")[2], source, found.with_null(False))


ONE_KEY = KeyColumn("all_records", "TRUE", FieldType("bool"), ())
"""The key of an operator with `key_by=()`: a column that is true, so it has one row (adr/0047)."""


def bind_keys(where: str, key_by: Sequence[str] | Mapping[str, str], record: FieldType) -> tuple[KeyColumn, ...]:
    """Returns the key columns of an operator.

    Args:
        where: the operator.
        key_by: record paths, or an expression for each name; empty for one key of all records.
        record: the struct of its records.

    Raises:
        DeclarationError: a field does not exist, an expression is not portable, or a type cannot be a key.
    """
    if not key_by:
        return (ONE_KEY,)
    if not isinstance(key_by, Mapping):
        return tuple(bind_key(where, source, record) for source in key_by)
    found = []
    for name, text in key_by.items():
        at = f"{where}: key_by={{{name!r}: {text!r}}}"
        if not is_field(name):
            raise DeclarationError(f"{at}: not a name of a column", next="use letters, digits and underscores.")
        if isinstance(text, str) and record.at(text.strip()) is not None:
            found.append(replace(bind_key(where, text.strip(), record), name=name))
        else:
            made = bind_expression(at, text, record)
            found.append(KeyColumn(name, made.text, bind_key_type(at, made), made.inputs))
    return tuple(found)


def bind_field(where: str, declared: StateDescriptor, record: FieldType) -> StoredField:
    """Returns the stored form of a declared field over a record type.

    Raises:
        DeclarationError: the record field does not exist, or the kind or the annotation does not fit its type.
    """
    at = f"{where}.{declared.name}"
    return _stored(declared, declared.state_kind.bound(at, declared, record))


def bind_latest(name: str, record: FieldType) -> StoredField:
    """Returns the stored field for the latest value of a record field, as a broadcast state keeps it.

    Raises:
        DeclarationError: the field is a dict, or contains one.
    """
    from tidemark.model.kinds.latest import Latest

    over = dict(record.fields)[name].bare
    if holds_map(over):
        raise DeclarationError(
            f"{name}: a broadcast state cannot keep a dict",
            next="declare a list of a dataclass with a key and a value.",
        )
    return StoredField(name=name, kind=Latest.name, source=name, over=over, type=over.with_null(True))


def bind_process_field(where: str, declared: StateDescriptor) -> StoredField:
    """Returns the stored form of a field of a process.

    Raises:
        DeclarationError: the initial value is not of the declared type, or a ttl leaves nothing to write.
    """
    from tidemark.model.kinds.base.process_kind import stored_initial

    at = f"{where}.{declared.name}"
    found = _stored(declared, declared.state_kind.bound(at, declared, FieldType("struct")))
    return replace(found, initial=stored_initial(at, declared))


def _stored(declared: StateDescriptor, found: "Input") -> StoredField:
    return StoredField(
        name=declared.name,
        kind=declared.kind,
        source=declared.source,
        over=found.over,
        type=declared.type,
        ignore_nulls=declared.ignore_nulls,
        limit=declared.limit,
        initial=declared.initial,
        ttl=declared.ttl,
        aggregate=found.aggregate,
        options=declared.options,
        others=found.others,
        was=declared.was,
    )


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
        key_by: the record field, or fields, that make the key, or a mapping from names to expressions of the portable
            subset, as in `{"shop": "lower(shop)", "hour": "date_trunc('hour', at)"}`. A record with a null in one of
            them is a dead letter. `()` is one key of all records, a column `all_records` that is true.
        where: a condition of the portable subset, as in `"amount > 0"`: a record for which it is not true is filtered,
            whether it has a key or not. It sees fields of the record and joined rows; it never applies to deletes.
        state: the `state.Keyed` class.
        input: the source by name, or the uid of an operator that emits the records; None = the only source.
        deletes: a record without a value deletes the key in its message key (a tombstone of a compacted topic); by
            default such a record is a dead letter, or filtered if the source has changes (`formats.Debezium`).
        join: for the uid of each broadcast state to join, the record field or fields that hold its key. The joined row
            becomes a field of the record: `key_by` and state fields may use `<uid>.<field>`, which is null if no row
            has the key. Every record of a checkpoint sees the version at its barrier, as in a `Process`.
        publish: where its current state is published, as in `[DeltaMirror("/lake/aircraft")]`.
        was: the previous uid of a renamed operator: its state is carried over.
        window: `Tumbling("1h")`, `Sliding("1h", every="5m")` or `Session("30m")`: a row per key and window of event
            time. When a window closes, the operator emits that row once, with the columns `window_start` and
            `window_end`, and it leaves the state.
        lateness: how far closing stays behind the clock (Flink's allowed lateness). A record whose window has closed is
            a dead letter, `late`, which does not count towards `max_dead_letters`.
        closes_by: `watermark` of the source, or `logical_time`: the end of the newest covered interval.
        sink: where the rows of closed windows go; None = only to operators that name this one as `input`.
        emit: `final`: a row per window, when it closes. `update`: also one at every checkpoint that folds records of an
            open window, for the sink only; `is_final` distinguishes them. Not with `Session`.
        late: where records whose window has closed go; None = they are dead letters. Operators read them as
            `<uid>.late`.
    """

    uid: str
    key_by: str | Sequence[str] | Mapping[str, str] = field(kw_only=True, hash=False)
    state: type[Keyed] = field(kw_only=True)
    where: str | None = field(default=None, kw_only=True)
    input: str | None = field(default=None, kw_only=True)
    deletes: bool = field(default=False, kw_only=True)
    join: Mapping[str, str | Sequence[str]] = field(default_factory=dict, kw_only=True, hash=False)
    publish: Sequence[Publication] = field(default=(), kw_only=True)
    was: str = field(default="", kw_only=True)
    window: Window | None = field(default=None, kw_only=True)
    lateness: str | timedelta = field(default="0s", kw_only=True)
    closes_by: Literal["watermark", "logical_time"] = field(default="watermark", kw_only=True)
    sink: "Sink | None" = field(default=None, kw_only=True)
    emit: Literal["final", "update"] = field(default="final", kw_only=True)
    late: "Sink | None" = field(default=None, kw_only=True)
    row: type = field(default=ClosedRow, init=False, repr=False, compare=False)
    late_row: type = field(default=ClosedRow, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check(self)
        given = (self.window, self.lateness, self.closes_by, self.sink, self.emit, self.late)
        if given != (None, "0s", "watermark", None, "final", None):
            check_window(self)
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
    def outputs(self) -> tuple[EmittedOutput, ...]:
        """The rows of windows, and with `late` late records; without windows it emits nothing.

        A pipeline gives `row` its columns, and `late_row` the class of its records.
        """
        rows = () if self.window is None else (EmittedOutput(self.uid, self.row, self.sink),)
        return rows if self.late is None else (*rows, EmittedOutput(late_output(self.uid), self.late_row, self.late))

    @property
    def lateness_ms(self) -> int:
        """The lateness in milliseconds."""
        return lateness_ms(self.uid, self.lateness)

    @property
    def clock_of_frontier(self) -> str | None:
        """The clock that its frontier follows; None without windows."""
        return None if self.window is None else self.closes_by

    @property
    def joins(self) -> tuple[Join, ...]:
        """The joins, ordered by uid, because the order of a mapping must not decide anything."""
        return tuple(Join(uid, (on,) if isinstance(on, str) else tuple(on)) for uid, on in sorted(self.join.items()))

    def bind(self, record: FieldType) -> OperatorSchema:
        """Returns the stored schema for a record type, including joined fields.

        Raises:
            DeclarationError: a key or field does not fit the record, two columns share a name, or a join is unused.
        """
        fields = tuple(bind_field(self.uid, d, record) for d in self.state.descriptors)
        window = None if self.window is None else self.window.stored
        schema = OperatorSchema(
            self.uid,
            bind_keys(self.uid, self.key_by, record) + (() if window is None else window_columns(window)),
            fields,
            clock=one_clock(self.uid, fields),
            deletes=self.deletes,
            window=window,
            keeps_late=self.late is not None,
            joins=self.joins,
            where=None if self.where is None else bind_where(self.uid, self.where, record),
            was=self.was,
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

    With `on_timer`, the function takes a keyword-only parameter, `timers`: `timers.set(name, at)` sets or replaces a
    timer of the key, `timers.cancel(name)` and `timers.clear()` take timers back. `on_timer(key, name, at, remembered)`
    is called when one fires, also for keys without records.

    Attributes:
        uid: as in `Fold`.
        key_by: as in `Fold`; the function gets the values of the expressions.
        where: as in `Fold`.
        state: the `state.Keyed` class, with fields `state.value`, `state.list` and `state.map`.
        function: a plain Python function.
        emits: dataclass of the yielded instances; None = the function yields nothing. For several outputs a dataclass
            each, by name, as in `{"alerts": Alert, "late": Late}`: the class of a row names its output. Operators read
            the first one by the uid, any other as `<uid>.<name>`.
        sink: where emitted rows go; None = only to operators that name this one as `input`.
        sinks: the sinks of several outputs, by name.
        input: as in `Fold`.
        order: `offset`, or `event_time` for (event time, topic, partition, offset) within a checkpoint.
        on_error: `fail`, or `dead_letter`: a record that makes the function raise becomes a dead letter and changes
            nothing.
        max_state_bytes: a key with more state is a `StateOverflowError` that names the key.
        operator_state: a `state.Operator` class with lists per parallel task; None = there are none.
        publish: as in `Fold`.
        was: as in `Fold`.
        on_timer: a function that gets key, name and time of a timer that fires, and the state of the key; a fifth
            parameter without a default gets the broadcast states. It yields as `function` does, and may take `timers`
            and `operator_state`. Records then come by event time, and a timer fires before records of its own time.
        fires_by: the clock that timers follow: `watermark` of the source, or `logical_time`: the end of the newest
            covered interval.
        lateness: how far firing stays behind that clock.
        reads: the fields that the functions use, for the lineage of columns: a list for all columns of state and
            outputs, or a list for each column by name, and under `"*"` the fields that decide whether there is a row or
            make every column. A field of a broadcast state is `<uid>.<field>`. Fields that reach a column through state
            belong to it. None = any field may.
    """

    uid: str
    key_by: str | Sequence[str] | Mapping[str, Any] = field(kw_only=True, hash=False)
    state: type[Keyed] = field(kw_only=True)
    where: str | None = field(default=None, kw_only=True)
    function: ProcessFunction = field(kw_only=True)
    emits: Emits = field(default=None, kw_only=True, hash=False)
    sink: "Sink | None" = field(default=None, kw_only=True)
    sinks: "Mapping[str, Sink]" = field(default_factory=dict, kw_only=True, hash=False)
    input: str | None = field(default=None, kw_only=True)
    order: Literal["offset", "event_time"] = field(default="offset", kw_only=True)
    on_error: Literal["fail", "dead_letter"] = field(default="fail", kw_only=True)
    max_state_bytes: int = field(default=16 * 2**20, kw_only=True)
    operator_state: type[OperatorLists] | None = field(default=None, kw_only=True)
    publish: Sequence[Publication] = field(default=(), kw_only=True)
    was: str = field(default="", kw_only=True)
    on_timer: ProcessFunction | None = field(default=None, kw_only=True)
    fires_by: Literal["watermark", "logical_time"] = field(default="watermark", kw_only=True)
    lateness: str | timedelta = field(default="0s", kw_only=True)
    reads: Reads = field(default=None, kw_only=True, hash=False)

    def __post_init__(self) -> None:
        _check(self)
        object.__setattr__(self, "reads", normal_reads(self.uid, self.reads))
        wrong = [d.name for d in self.state.descriptors if not d.is_process]
        if wrong:
            raise DeclarationError(
                f"{self.uid}: {', '.join(wrong)}: kinds of state for a Fold in a Process",
                next="declare state.value, state.list() or state.map(), or declare a Fold.",
            )
        if not callable(self.function):
            raise DeclarationError(f"{self.uid}: function={self.function!r}", next="give a function.")
        check_outputs(self.uid, self.outputs)
        check_lists(self)
        check_timers(self)
        if self.on_timer is not None:
            object.__setattr__(self, "order", "event_time")

    def bind(self, record: FieldType) -> OperatorSchema:
        """Returns the stored schema for a record type; see `Fold.bind`."""
        return self.bound(bind_keys(self.uid, self.key_by, record), record)

    def bound(self, keys: tuple[KeyColumn, ...], record: FieldType) -> OperatorSchema:
        """Returns the stored schema for key columns that are bound already."""
        fields = tuple(bind_process_field(self.uid, d) for d in self.state.descriptors)
        fields += () if self.on_timer is None else (timer_field(),)
        schema = OperatorSchema(
            self.uid,
            keys,
            fields,
            kind="process",
            clock=one_clock(self.uid, fields),
            where=None if self.where is None else bind_where(self.uid, self.where, record),
            was=self.was,
        )
        return distinct_columns(self.uid, schema)

    @property
    def takes_broadcast(self) -> bool:
        """Whether one of its functions has a further parameter without a default, for broadcast states."""
        return takes_more(self.function, 3) or (self.on_timer is not None and takes_more(self.on_timer, 4))

    @property
    def lateness_ms(self) -> int:
        """The lateness in milliseconds."""
        return lateness_ms(self.uid, self.lateness)

    @property
    def clock_of_frontier(self) -> str | None:
        """The clock that its frontier follows; None without timers."""
        return None if self.on_timer is None else self.fires_by

    @property
    def lists(self) -> OperatorState:
        """The declared lists of operator state, without elements."""
        declared = () if self.operator_state is None else self.operator_state.descriptors
        lists = (OperatorList(name=d.name, mode=d.mode, element=d.element, was=d.was) for d in declared)
        return OperatorState(lists=tuple(lists))

    @property
    def outputs(self) -> tuple[EmittedOutput, ...]:
        """Its outputs; the first has its uid. Empty if it emits nothing."""
        return declared_outputs(self.uid, self.emits, self.sink, self.sinks)


Operator = Fold | Process | FlatMap | IntervalJoin


def _check(operator: Fold | Process) -> None:
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
    given = operator.key_by
    keys = (given,) if isinstance(given, str) else tuple(given)
    if len(set(keys)) != len(keys):
        raise DeclarationError(
            f"{operator.uid}: key_by={operator.key_by!r}", next="name one record field or several different ones."
        )
    object.__setattr__(operator, "key_by", dict(given) if isinstance(given, Mapping) else keys)
    object.__setattr__(operator, "publish", named(operator.uid, operator.publish))
