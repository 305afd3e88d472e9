"""A pipeline as a frozen value; importing its file needs neither Spark nor Airflow."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from typing import Any

from tidemark.declare.co_process import CoProcess, bind_co_process
from tidemark.declare.flat_map import FlatMap
from tidemark.declare.interval_join import IntervalJoin, bind_join
from tidemark.declare.operators import Fold, Operator, Process
from tidemark.declare.outputs import EmittedOutput
from tidemark.declare.publications import Publication
from tidemark.declare.sources import Broadcast, DeltaTable, KafkaSource, Start, TopicPattern, bind_changes
from tidemark.declare.windows import with_closed_row
from tidemark.errors import DeclarationError, NotFoundError
from tidemark.model.checkpoint.segments import OperatorState
from tidemark.model.columns.declared_columns import DeclaredColumns
from tidemark.model.core.canonical import checksum, code_text
from tidemark.model.core.clocks import WatermarkRule
from tidemark.model.core.names import checked_name
from tidemark.model.core.ttl import checked_keep_for
from tidemark.model.core.types import FieldType, type_to_json
from tidemark.model.schema.lookup_joins import joined_record
from tidemark.model.schema.operator_schema import OperatorSchema

__all__ = [
    "Broadcast", "DeltaTable", "Expectations", "FlatMap", "Fold", "Gate", "KafkaSource", "Operator", "Pipeline",
    "Process", "Start", "TopicPattern",
]  # fmt: skip

# The fingerprint of a pipeline: the parts of each declaration that decide results.
BESIDE = "@"
"""Starts the suffix of a module name that only distinguishes files of one name in one process (`environment`)."""


def of_source(source: KafkaSource) -> dict[str, Any]:
    """Returns the parts of a source that decide how its records are read."""
    found = {"record": type_to_json(source.schema), "event_time": source.event_time, "isolation": source.isolation}
    pinned = dict(source.format.freeze())
    return found | ({"format": pinned} if pinned else {})


def of_operator(operator: Operator) -> dict[str, Any]:
    """Returns the parts of an operator that decide results, in addition to its stored schema."""
    found: dict[str, Any] = {"uid": operator.uid, "input": operator.input}
    if isinstance(operator, FlatMap):
        found |= {
            "function": code_text(operator.function),
            "emits": _emitted_to_json(operator),
            "on_error": operator.on_error,
        }
    if isinstance(operator, CoProcess):
        found["inputs"] = {name: list(operator.key_by[name]) for name in operator.inputs}
    if isinstance(operator, IntervalJoin):
        found |= {"select": dict(operator.select), "emits": _emitted_to_json(operator)}
    if isinstance(operator, Process):
        found |= {
            "function": code_text(operator.function),
            "emits": _emitted_to_json(operator),
            "order": operator.order,
            "on_error": operator.on_error,
            "max_state_bytes": operator.max_state_bytes,
        }
        if operator.on_timer is not None:
            found["on_timer"] = code_text(operator.on_timer)
        if operator.lists:
            lists = operator.lists.lists
            found["operator_state"] = [[x.name, x.mode.value, type_to_json(x.element)] for x in lists]
    return found


def _emitted_to_json(operator: Operator) -> Any:
    """Returns the struct of what an operator emits, for several outputs one each by name; None if it emits nothing."""
    found = [[output.uid, type_to_json(output.emitted)] for output in operator.outputs]
    return found if len(found) > 1 else found[0][1] if found else None


def of_gate(gate: Callable[..., object] | None) -> str | None:
    """Returns the name of a gate; it is the same in a process that has imported another file of that name before."""
    return None if gate is None else f"{gate.__module__.partition(BESIDE)[0]}.{gate.__qualname__}"


ONLY = "records"
"""The name of the only source of a pipeline."""
Expectations = Sequence[Any]
"""Great Expectations expectations; loosely typed because importing them takes seconds."""
Gate = Callable[[], Mapping[str, Expectations | Mapping[str, Expectations]]]
"""Returns `{"records": [...], "changes": {uid: [...]}, "state": {uid: [...]}}`; imports GX inside its body."""


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """Sources, operators, and one checkpoint over all of them.

    >>> from dataclasses import dataclass
    >>> from tidemark import Fold, KafkaSource, Pipeline, state
    >>> @dataclass(frozen=True)
    ... class Flight:
    ...     origin: str
    ...     distance: int
    >>> class Airport(state.Keyed):
    ...     departures: int = state.count()
    >>> pipeline = Pipeline(
    ...     name="flights",
    ...     source=KafkaSource("flights", Flight),
    ...     operators=[Fold("airports", key_by="origin", state=Airport)],
    ... )
    >>> pipeline.operator("airports").key_by
    ('origin',)

    Attributes:
        name: identifies the state: a pipeline continues from the newest checkpoint under its name.
        source: the only source; its name is `records`.
        sources: several sources, by name; one barrier cuts them all.
        operators: the operators, each with a unique uid.
        broadcast: small tables that every `Process` may look into and a `Fold` may join.
        gate: the quality gate; it judges the candidate before anything is published.
        max_dead_letters: the greatest share of a checkpoint's records, per uid, that may become dead letters.
        max_future: a record whose event time exceeds the logical time by more than this becomes a dead letter.
        tolerable_failed_checkpoints: consecutive failures before the pipeline is paused.
        min_pause: minimum time between the end of one checkpoint and the start of the next.
        checkpoint_timeout: an attempt that takes longer expires.
        max_records: how many records a checkpoint may read, over all partitions of all sources; None = all that wait. A
            run then makes as many checkpoints as it needs.
        max_bytes: the same in bytes of keys and values; approximate, by the mean size of the records before.
        keep_dead_letters_for: dead letters of a checkpoint are hidden as of later checkpoints whose logical time
            exceeds that of the first one by this much or more; compaction and retention then delete them. None = they
            stay.
    """

    name: str
    source: KafkaSource | None = None
    sources: Mapping[str, KafkaSource] = field(default_factory=dict)
    operators: Sequence[Operator]
    broadcast: Sequence[Broadcast] = ()
    gate: Gate | None = None
    max_dead_letters: float = 0.05
    max_future: timedelta = timedelta(days=1)
    tolerable_failed_checkpoints: int = 0
    min_pause: timedelta = timedelta(0)
    checkpoint_timeout: timedelta = timedelta(minutes=10)
    max_records: int | None = None
    max_bytes: int | None = None
    keep_dead_letters_for: timedelta | None = None

    def __post_init__(self) -> None:
        checked_name("pipeline", self.name)
        object.__setattr__(self, "operators", tuple(self.operators))
        object.__setattr__(self, "broadcast", tuple(self.broadcast))
        # `dataclasses.replace(pipeline, source=...)` passes the `sources` that were derived from the old source.
        if self.source is not None and set(self.sources) <= {ONLY}:
            object.__setattr__(self, "sources", {ONLY: self.source})
        elif (self.source is None) == (not self.sources):
            raise DeclarationError(
                f"{self.name}: both source= and sources=, or neither", next="give source=..., or sources={...}."
            )
        self._check_names()
        if not 0 <= self.max_dead_letters <= 1:
            raise DeclarationError(f"max_dead_letters={self.max_dead_letters}", next="give a share between 0 and 1.")
        for name, most in (("max_records", self.max_records), ("max_bytes", self.max_bytes)):
            if most is not None and most < 1:
                raise DeclarationError(f"{name}={most}", next="give at least 1, or omit it.")
        checked_keep_for(f"{self.name}: keep_dead_letters_for", self.keep_dead_letters_for)
        self._bind_windows()
        self.schemas()
        if any(isinstance(o, Process | FlatMap) and o.reads is not None for o in self.operators):
            self._declare_columns()

    def _bind_windows(self) -> None:
        """Gives the rows of closed windows their columns, in order, because one operator may read those of another."""
        for operator in self.in_order():
            if isinstance(operator, Fold) and operator.window is not None:
                bound = with_closed_row(operator, self._schema_of(operator), self.record_class(self.input_of(operator)))
                object.__setattr__(self, "operators", tuple(bound if o is operator else o for o in self.operators))

    def is_bounded(self, max_records: int | None = None) -> bool:
        """Whether a run may make several checkpoints, because one does not read all that waits.

        Args:
            max_records: the bound of the run's request, if it has one of its own.
        """
        return any(most is not None for most in (max_records, self.max_records, self.max_bytes))

    @property
    def inputs(self) -> dict[str, KafkaSource]:
        """Everything that is read from Kafka, by name: the sources, and by uid the topics of broadcast states.

        One barrier cuts all inputs; a topic belongs to exactly one of them.
        """
        return {**self.sources, **{b.uid: b.source for b in self.broadcast if isinstance(b.source, KafkaSource)}}

    @property
    def formats(self) -> dict[str, dict[str, str]]:
        """What plans pin of the input formats, by name; nothing for JSON."""
        pinned = {name: source.pinned for name, source in self.inputs.items()}
        return {name: held for name, held in pinned.items() if held}

    @property
    def watermarks(self) -> dict[str, WatermarkRule]:
        """The rule of each source that declares a watermark, by name."""
        return {name: s.watermark.rule for name, s in self.sources.items() if s.watermark is not None}

    @property
    def clocked(self) -> tuple[Fold | Process | IntervalJoin, ...]:
        """The operators with a frontier: folds with windows, processes with timers, and interval joins."""
        return tuple(o for o in self.operators if not isinstance(o, FlatMap) and o.clock_of_frontier is not None)

    @property
    def event_times(self) -> dict[str, FieldType]:
        """Where the sources of folds with windows have their event time; see `CheckpointPlan.event_times`."""
        read = {self.input_of(o) for o in self.operators if isinstance(o, Fold) and o.window is not None}
        return {name: source.event_time_type for name, source in self.sources.items() if name in read}

    @property
    def isolation(self) -> str:
        """The Kafka isolation level of all reads."""
        return next(iter(self.inputs.values())).isolation

    @property
    def tables(self) -> dict[str, Broadcast]:
        """The broadcast states that are copied from tables, by uid."""
        return {b.uid: b for b in self.broadcast if isinstance(b.source, DeltaTable)}

    @property
    def uids(self) -> tuple[str, ...]:
        """The uids of broadcast states, then those of operators, each after the operator whose records it gets."""
        return (*(b.uid for b in self.broadcast), *(o.uid for o in self.in_order()))

    def record_class(self, name: str) -> type:
        """Returns the dataclass of the records of a source or an output."""
        return self.sources[name].record if name in self.sources else self.outputs[name].emits

    def may_fail(self, name: str) -> bool:
        """Whether a function may turn good records of an input into dead letters, so that their raw bytes are kept."""
        functions = [o for o in self.operators if isinstance(o, Process | FlatMap)]
        return any(o.on_error == "dead_letter" for o in functions if name in self.inputs_of(o))

    @property
    def outputs(self) -> dict[str, EmittedOutput]:
        """Everything that operators emit, by the name that other operators give as `input`."""
        return {output.uid: output for o in self.operators for output in o.outputs}

    @property
    def recorded_inputs(self) -> dict[str, str]:
        """The input of every operator with one: plans record it with FlatMaps, windows, timers or several outputs."""
        emitting = any(isinstance(o, FlatMap) or len(o.outputs) > 1 for o in self.operators) or self.clocked
        return {o.uid: self.input_of(o) for o in self.operators if emitting and len(self.inputs_of(o)) == 1}

    def readers(self, name: str) -> tuple[str, ...]:
        """Returns the uids of broadcast states, then of operators, that read an input or what an operator emits."""
        own = [b.uid for b in self.broadcast if b.uid == name and isinstance(b.source, KafkaSource)]
        return (*own, *(o.uid for o in self.operators if name in self.inputs_of(o)))

    def schemas(self) -> dict[str, OperatorSchema]:
        """The stored schema of every operator, by uid, in declaration order; broadcast states first."""
        return dict(self._schemas)

    @cached_property
    def _schemas(self) -> dict[str, OperatorSchema]:
        found = {b.uid: b.bind() for b in self.broadcast}
        return found | {o.uid: self._schema_of(o) for o in self.operators}

    def _schema_of(self, operator: Operator) -> OperatorSchema:
        if isinstance(operator, IntervalJoin | CoProcess):
            records = [self.input_record(name, operator.uid) for name in operator.inputs]
            if isinstance(operator, IntervalJoin):
                return bind_join(operator, self.sources, records)
            return bind_co_process(operator, self.sources, records)
        bound, name = operator.bind(self.record_of(operator)), self.input_of(operator)
        return bind_changes(bound, self.sources[name]) if name in self.sources else bound

    @cached_property
    def columns(self) -> DeclaredColumns:
        """What plans record for the lineage of columns."""
        return self._declare_columns()

    def _declare_columns(self) -> DeclaredColumns:
        from tidemark.declare.recorded_columns import declared_columns

        return declared_columns(self)

    def operator_states(self) -> dict[str, OperatorState]:
        """The declared lists of operator state, without elements, by uid of the operators that have some."""
        found = {o.uid: o.lists for o in self.operators if isinstance(o, Process)}
        return {uid: lists for uid, lists in found.items() if lists}

    def record_of(self, operator: Fold | Process | FlatMap) -> FieldType:
        """Returns the struct of the records that an operator gets, including the joins of a fold.

        Raises:
            DeclarationError: the input is neither a source nor an operator that emits, or a join does not fit.
        """
        if isinstance(operator, CoProcess):
            return operator.united([self.input_record(name, operator.uid) for name in operator.inputs])
        found = self.input_record(self.input_of(operator), operator.uid)
        if not (isinstance(operator, Fold) and operator.joins):
            return found
        states = {b.uid: (b.bind().keys, b.source.schema) for b in self.broadcast}
        return joined_record(operator.uid, operator.joins, found, states)

    def input_record(self, name: str, where: str = "") -> FieldType:
        """Returns the struct of the records of an input, or of those that an operator emits.

        Args:
            name: the input, or the uid of the operator.
            where: the operator that names it, for the message.

        Raises:
            DeclarationError: it is neither an input nor an operator that emits.
        """
        if name in self.inputs:
            return self.inputs[name].schema
        if name not in self.outputs:
            raise DeclarationError(
                f"{where or self.name}: unknown input {name!r}",
                next=f"name a source or an operator that emits: {', '.join([*self.sources, *self.outputs])}.",
            )
        return self.outputs[name].emitted

    def input_of(self, operator: Operator) -> str:
        """Returns the name of the source, or the uid of the operator, whose records an operator gets."""
        if operator.input is None and len(self.sources) > 1:
            raise DeclarationError(
                f"{operator.uid}: the pipeline has several sources, and input= is missing",
                next=f"give input=, one of {', '.join(self.sources)}.",
            )
        return next(iter(self.sources)) if operator.input is None else operator.input

    def inputs_of(self, operator: Operator) -> tuple[str, ...]:
        """Returns the names of all sources and outputs whose records an operator gets."""
        if isinstance(operator, IntervalJoin | CoProcess):
            return tuple(operator.inputs)
        return (self.input_of(operator),)

    def in_order(self) -> tuple[Operator, ...]:
        """The operators, each after those whose emitted records it gets.

        Raises:
            DeclarationError: operators feed each other in a cycle.
        """
        waiting, done = list(self.operators), list[Operator]()
        while waiting:
            open_ = {output.uid for w in waiting for output in w.outputs}
            ready = [o for o in waiting if not open_.intersection(self.inputs_of(o))]
            if not ready:
                raise DeclarationError(
                    f"{self.name}: operators feed each other in a cycle: {', '.join(o.uid for o in waiting)}",
                    next="let one of them read a source.",
                )
            done += ready
            waiting = [o for o in waiting if o not in ready]
        return tuple(done)

    @property
    def publications(self) -> tuple[tuple[str, Publication], ...]:
        """The declared publications, each with the uid of its operator."""
        return tuple((o.uid, publication) for o in self.operators for publication in o.publish)

    def operator(self, uid: str) -> Operator:
        """Returns the operator with a uid.

        Raises:
            NotFoundError: there is no such operator; the message lists the existing ones.
        """
        for found in self.operators:
            if found.uid == uid:
                return found
        raise NotFoundError(
            f"no operator {uid!r} in pipeline {self.name}",
            next=f"name one of: {', '.join(o.uid for o in self.operators)}.",
        )

    @cached_property
    def fingerprint(self) -> str:
        """Hash (sha256) of what decides results: record types, schemas, functions, rules for bad and late records.

        A plan with another fingerprint is aborted with CODE_CHANGED and never finished by this code.
        """
        return checksum(
            {
                "inputs": {name: of_source(s) for name, s in self.inputs.items()},
                "tables": {b.uid: b.source.path for b in self.broadcast if isinstance(b.source, DeltaTable)},
                "schemas": [s.declared.to_json() for s in self.schemas().values()],
                "operators": [of_operator(o) for o in self.operators],
                "max_dead_letters": repr(self.max_dead_letters),
                "max_future_us": self.max_future // timedelta(microseconds=1),
                "gate": of_gate(self.gate),
            }
        )

    def _check_names(self) -> None:
        if not self.operators:
            raise DeclarationError(
                f"{self.name} has no operators", next="declare at least one Fold, Process or FlatMap."
            )
        uids = [o.uid for o in (*self.broadcast, *self.operators)]
        outputs = [output.uid for o in self.operators for output in o.outputs if output.uid != o.uid]
        sinks = [output.sink.name for output in self.outputs.values() if output.sink is not None]
        publications = [p for _, p in self.publications]
        shared = {
            "operators share the uid": uids,
            "operators or outputs share the uid": [*uids, *outputs],
            "sinks share the name": sinks,
            "publications share the name": [p.name for p in publications],
            "publications share the place": [p.place for p in publications],
        }
        for what, names in shared.items():
            lowered = [n.lower() for n in names]
            twice = sorted({n for n in lowered if lowered.count(n) > 1})
            if twice:
                raise DeclarationError(f"{self.name}: two {what} {', '.join(twice)}", next="give each its own.")
        both = sorted(set(self.sources) & set(uids))
        if both:
            raise DeclarationError(
                f"{self.name}: {', '.join(both)} is both a source and a uid", next="rename one of them."
            )
        for name in self.sources:
            checked_name("source", name)
        if len({s.isolation for s in self.inputs.values()}) > 1:
            raise DeclarationError(
                f"{self.name}: sources with different isolation levels",
                next="read all of them with one isolation level.",
            )
        self._check_topics()
        self.in_order()
        for o in self.operators:
            if isinstance(o, Fold) and o.deletes and self.input_of(o) not in self.sources:
                raise DeclarationError(
                    f"{o.uid}: deletes=True on records that an operator emits",
                    next="leave it out: emitted records always have a value.",
                )

    def _check_topics(self) -> None:
        # Only Kafka knows which topics two patterns share; the planner checks that.
        for name, source in self.inputs.items():
            for other, its in self.inputs.items():
                shared = [] if name == other else [topic for topic in source.names if its.names_topic(topic)]
                if shared:
                    raise shared_topic(self.name, shared[0], (name, other))


def shared_topic(pipeline: str, topic: str, names: Sequence[str]) -> DeclarationError:
    """Returns the error for a topic that two inputs would read."""
    return DeclarationError(
        f"{pipeline}: topic {topic} belongs to {' and to '.join(names)}",
        next="let one of them read it, and give its name as input= to every operator that needs it.",
    )
