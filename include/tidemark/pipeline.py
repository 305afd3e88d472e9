"""What an author writes: a pipeline is a frozen value, and importing one needs neither Spark nor Airflow."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

from tidemark.errors import DeclarationError, NotFoundError
from tidemark.model.canonical import checksum
from tidemark.model.names import checked_name
from tidemark.model.offsets import TopicPartition
from tidemark.model.schema import OperatorSchema, bind_field, bind_key, type_to_json
from tidemark.model.types import FieldType, record_type
from tidemark.state import Keyed

Start = Literal["earliest", "latest", "committed"] | datetime | Mapping[TopicPartition, int]
"""Where a pipeline's first checkpoint starts (J6); a datetime is the first record at or after it, else the end."""


@dataclass(frozen=True)
class TopicPattern:
    """Every topic whose whole name matches a regular expression of Python's `re` (J5)."""

    regex: str

    def __post_init__(self) -> None:
        try:
            re.compile(self.regex)
        except (re.error, OverflowError, RecursionError, TypeError) as error:
            raise DeclarationError(
                f"not a regular expression: {self.regex!r} ({error})", next="correct the TopicPattern."
            ) from error
        if not self.regex:
            raise DeclarationError(
                "an empty TopicPattern matches no topic", next="name the topics, or match them all: '.*'."
            )


@dataclass(frozen=True)
class KafkaSource:
    """A bounded read of Kafka topics.

    Attributes:
        topics: one topic, several, a `TopicPattern`, or an explicit set of `TopicPartition`s (J5).
        record: dataclass that the JSON value is decoded to.
        event_time: the datetime field of the record that is its event time; None = the Kafka timestamp.
        start: where the first checkpoint starts; later ones start where their parent ended (I6).
        isolation: Kafka's isolation level; stored in every manifest (J11).
        group: consumer group whose offsets are set after completion, for lag monitoring only (J10), and read
            once by `start="committed"`.
    """

    topics: str | Sequence[str] | TopicPattern | frozenset[TopicPartition]
    record: type
    event_time: str | None = None
    start: Start = "earliest"
    isolation: Literal["read_committed", "read_uncommitted"] = "read_committed"
    group: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.topics, TopicPattern):
            names: Sequence[str] = ()
        elif isinstance(self.topics, str):
            names = (self.topics,)
        elif isinstance(self.topics, frozenset):
            names = sorted({tp.topic for tp in self.topics})
        else:
            names = tuple(self.topics)
            object.__setattr__(self, "topics", names)
        for name in names:
            checked_name("topic", name)
        if not names and not isinstance(self.topics, TopicPattern):
            raise DeclarationError("a source without topics", next="name at least one topic.")
        if self.event_time is not None:
            found = self.schema.at(self.event_time)
            if found is None or found.kind != "timestamp" or found.nullable:
                raise DeclarationError(
                    f"event_time={self.event_time!r} is not a datetime field of {self.record.__name__}",
                    next="name a field declared `datetime` (not optional), or leave event_time out.",
                )

    @property
    def schema(self) -> FieldType:
        """The struct that a value is decoded to."""
        return record_type(self.record)


@dataclass(frozen=True)
class Fold:
    """An operator that folds the records of a key into accumulators (Flink's ReducingState, AggregatingState).

    Attributes:
        uid: names the state; mandatory and unique (C6). State is found by pipeline name + uid, never by position.
        key_by: record field, or several, that make the key; a record in which one is null is a dead letter.
        state: the `state.Keyed` class.
    """

    uid: str
    key_by: str | Sequence[str] = field(kw_only=True)
    state: type[Keyed] = field(kw_only=True)

    def __post_init__(self) -> None:
        checked_name("uid", self.uid)
        if not (isinstance(self.state, type) and issubclass(self.state, Keyed) and self.state is not Keyed):
            raise DeclarationError(f"{self.uid}: {self.state!r} is no state class", next="derive it from state.Keyed.")
        keys = (self.key_by,) if isinstance(self.key_by, str) else tuple(self.key_by)
        if not keys or len(set(keys)) != len(keys):
            raise DeclarationError(
                f"{self.uid}: key_by={self.key_by!r}", next="name one record field or several different ones."
            )
        object.__setattr__(self, "key_by", keys)

    def bind(self, record: FieldType) -> OperatorSchema:
        """The stored schema over a record type.

        Raises:
            DeclarationError: a key or a field does not fit the record, or two columns have one name.
        """
        keys = tuple(bind_key(self.uid, source, record) for source in self.key_by)
        fields = tuple(bind_field(self.uid, d, record) for d in self.state.descriptors)
        columns = [k.name for k in keys] + [name for f in fields for name, _ in f.accumulators]
        lowered = [c.lower() for c in columns]
        twice = sorted({c for c in lowered if lowered.count(c) > 1})
        if twice:
            raise DeclarationError(
                f"{self.uid}: two columns are called {', '.join(twice)}", next="rename the state field."
            )
        return OperatorSchema(self.uid, keys, fields)


Expectations = Sequence[Any]
"""Great Expectations expectations; typed loosely because importing them costs seconds."""
Gate = Callable[[], Mapping[str, Expectations | Mapping[str, Expectations]]]
"""Returns `{"records": [...], "changes": {uid: [...]}, "state": {uid: [...]}}`; imports GX inside its body."""


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """One source, several operators, one checkpoint over all of them.

    Attributes:
        name: finds the state; a pipeline continues from its newest checkpoint by name (I5 of flink.md).
        source: what is read.
        operators: what is remembered; uids are unique.
        gate: quality gate, judged on the candidate before anything is published (Q8).
        max_dead_letters: greatest share of a checkpoint's records, per uid, that may be dead letters.
        max_future: a record whose event time is later than logical time + this is a dead letter.
        tolerable_failed_checkpoints: failures in a row before the pipeline is paused (D6).
        min_pause: least time between the end of one checkpoint and the start of the next (D4).
        checkpoint_timeout: an attempt that is older expires (D3).
    """

    name: str
    source: KafkaSource
    operators: Sequence[Fold]
    gate: Gate | None = None
    max_dead_letters: float = 0.05
    max_future: timedelta = timedelta(days=1)
    tolerable_failed_checkpoints: int = 0
    min_pause: timedelta = timedelta(0)
    checkpoint_timeout: timedelta = timedelta(minutes=10)

    def __post_init__(self) -> None:
        checked_name("pipeline", self.name)
        object.__setattr__(self, "operators", tuple(self.operators))
        uids = [o.uid.lower() for o in self.operators]
        twice = sorted({u for u in uids if uids.count(u) > 1})
        if twice:
            raise DeclarationError(
                f"{self.name}: two operators have the uid {', '.join(twice)}", next="give each its own uid."
            )
        if not uids:
            raise DeclarationError(f"{self.name} has no operators", next="declare at least one Fold.")
        if not 0 <= self.max_dead_letters <= 1:
            raise DeclarationError(f"max_dead_letters={self.max_dead_letters}", next="give a share between 0 and 1.")
        self.schemas()

    def schemas(self) -> dict[str, OperatorSchema]:
        """The stored schema of every operator, by uid, in declaration order."""
        record = self.source.schema
        return {o.uid: o.bind(record) for o in self.operators}

    def operator(self, uid: str) -> Fold:
        """The operator with a uid.

        Raises:
            NotFoundError: no such operator; the message lists those there are.
        """
        for found in self.operators:
            if found.uid == uid:
                return found
        raise NotFoundError(
            f"no operator {uid!r} in pipeline {self.name}",
            next=f"name one of: {', '.join(o.uid for o in self.operators)}.",
        )

    @property
    def fingerprint(self) -> str:
        """sha256 over what decides results: record type, event time, schemas, dead-letter and lateness rules.

        A plan that was made by another fingerprint is aborted with CODE_CHANGED, never finished by this code.
        """
        return checksum(
            {
                "record": type_to_json(self.source.schema),
                "event_time": self.source.event_time,
                "isolation": self.source.isolation,
                "operators": [s.to_json() for s in self.schemas().values()],
                "max_dead_letters": repr(self.max_dead_letters),
                "max_future_us": self.max_future // timedelta(microseconds=1),
                "gate": None if self.gate is None else f"{self.gate.__module__}.{self.gate.__qualname__}",
            }
        )
