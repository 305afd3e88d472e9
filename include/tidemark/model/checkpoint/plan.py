"""The plan of a checkpoint: everything that decides its result, frozen before anything is read."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from tidemark.errors import UsageError
from tidemark.model.checkpoint.codec import ADDED
from tidemark.model.checkpoint.segments import StateHandle
from tidemark.model.checkpoint.sinks import SinkTable
from tidemark.model.core.names import checked_name
from tidemark.model.core.offsets import OffsetRange, OffsetRanges, TopicPartition
from tidemark.model.core.types import FieldType
from tidemark.model.schema.operator_schema import OperatorSchema

BOUND = 64 * 1024
"""Maximum bytes of an operator's lists as JSON; they are stored in the manifest, and every task gets them."""


class Redistribution(Enum):
    """The part of a list that a parallel task gets (Flink's OperatorStateHandle.Mode).

    SPLIT: a contiguous slice; sizes differ by at most one element, and the first tasks have the longer ones. UNION: the
    whole list.
    """

    SPLIT = "split"
    UNION = "union"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorList:
    """One list.

    Attributes:
        name: name of the field.
        mode: how the list is distributed.
        element: type of its elements.
        elements: the elements in JSON form (`model.core.json_values`), in order.
        was: the previous name of a renamed field; only in declarations, never in manifests.
    """

    name: str
    mode: Redistribution
    element: FieldType
    elements: tuple[Any, ...] = ()
    was: str = field(default="", compare=False, metadata=ADDED)

    @property
    def size(self) -> int:
        """Bytes of its elements as JSON."""
        return sum(map(json_size, self.elements))


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The part of one list that one task leaves.

    Attributes:
        elements: for a split list, all current elements of the task; for a union list, the elements that it appended
            since it last cleared the list.
        cleared: whether the task cleared a union list; unused for a split list.
    """

    elements: tuple[Any, ...]
    cleared: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorState:
    """All lists of an operator, in order of declaration; false if it declares none.

    Attributes:
        lists: the lists with their elements.
        tasks: number of parallel tasks that left them; 0 = none has run yet.
    """

    lists: tuple[OperatorList, ...] = ()
    tasks: int = 0

    def __bool__(self) -> bool:
        return bool(self.lists)

    def given(self, task: int, tasks: int) -> dict[str, tuple[Any, ...]]:
        """Returns the part of each list that a task gets.

        Args:
            task: number of the task, from 0.
            tasks: number of tasks.
        """
        return {x.name: x.elements if x.mode is Redistribution.UNION else _slice(x, task, tasks) for x in self.lists}

    def joined(self, left: Mapping[int, Mapping[str, Part]], tasks: int) -> "OperatorState":
        """Combines the parts that the tasks leave.

        A split list is the concatenation of all tasks' lists in the order of tasks. A union list is the old list, or
        nothing if any task cleared it, followed by the elements that the tasks appended, in the order of tasks.

        Args:
            left: per task the lists that it changed; every other task left its part unchanged.
            tasks: number of tasks.
        """
        return OperatorState(lists=tuple(_joined(x, left, tasks) for x in self.lists), tasks=tasks)


def task_of(group: int, groups: int, tasks: int) -> int:
    """Returns the task of a key group: contiguous ranges, as in Flink."""
    return group * tasks // groups


def json_size(body: Any) -> int:
    """Returns the size of a JSON value in bytes."""
    return len(json.dumps(body, ensure_ascii=False).encode())


def _slice(x: OperatorList, task: int, tasks: int) -> tuple[Any, ...]:
    least, longer = divmod(len(x.elements), tasks)
    start = task * least + min(task, longer)
    return x.elements[start : start + least + (task < longer)]


def _joined(x: OperatorList, left: Mapping[int, Mapping[str, Part]], tasks: int) -> OperatorList:
    parts = {task: lists[x.name] for task, lists in sorted(left.items()) if x.name in lists}
    if x.mode is Redistribution.UNION:
        old = () if any(p.cleared for p in parts.values()) else x.elements
        return replace(x, elements=(*old, *(e for p in parts.values() for e in p.elements)))
    whole = (parts[t].elements if t in parts else _slice(x, t, tasks) for t in range(tasks))
    return replace(x, elements=tuple(e for part in whole for e in part))


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A DAG run's data interval `[start, end)`, in milliseconds since the epoch (UTC)."""

    start_ms: int
    end_ms: int

    def __post_init__(self) -> None:
        if self.start_ms > self.end_ms:
            raise UsageError(f"interval runs backwards: {self.start_ms} > {self.end_ms}", next="give start <= end.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Offsets that were lost before they were read, recorded because you passed `--accept-loss`."""

    partition: TopicPartition
    lost: OffsetRange
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A place in a timeline: the k-th plan of sequence `sequence`."""

    timeline: str
    sequence: int
    k: int = 1

    def __str__(self) -> str:
        return f"{self.timeline}/{self.sequence}.{self.k}"

    @classmethod
    def parse(cls, text: str) -> "Slot":
        """The inverse of `str`.

        Raises:
            UsageError: the text does not have the form `t1/3.1`.
        """
        timeline, _, place = text.rpartition("/")
        sequence, _, k = place.partition(".")
        if not timeline or not sequence.isdecimal() or not k.isdecimal():
            raise UsageError(f"not a slot: {text!r}", next="write TIMELINE/SEQUENCE.K, as in t1/3.1.")
        return cls(timeline=checked_name("timeline", timeline), sequence=int(sequence), k=int(k))


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPlan:
    """Everything that decides a checkpoint; written once, never edited. Attempts of one plan differ by number only.

    Attributes:
        pipeline: name of the pipeline.
        id: checkpoint id, ascending over all timelines.
        slot: timeline, sequence, k.
        parent: id of the preceding checkpoint; None for the first.
        ranges: `[start, end)` of every partition, including empty ones.
        topic_ids: Kafka's id of every topic, compared again after the read.
        sources: topics per input (`Pipeline.inputs`); a topic belongs to at most one input. Topics of `ranges` that no
            input reads are parked: their ranges are empty, and an input that reads them later continues there.
        handles: input handle per uid, with adopted compactions; empty for an operator without state.
        dead_letters: handle of the dead-letter table per uid, as the parent left it.
        tables: per uid the folder of this checkpoint's run, `<pipeline>/state/<uid>/<timeline>-<n>`, relative to the
            warehouse; n is the id of the checkpoint that began the folder, so no folder is begun twice.
        schemas: stored schema per uid.
        adopted: per uid the key of the compaction record that `handles` already uses.
        logical_time_ms: "now" of this checkpoint, never below the parent's.
        watermark_ms: event-time watermark at the start of the batch; None before the first record.
        watermarks: the same for each partition of the pipeline's sources that has been read.
        interval: the data interval to cover; None if the run was not bound to one.
        covers: whether completing this plan covers `interval` (false if `max_records` cut it).
        isolation: Kafka isolation level of the read.
        fingerprint: `Pipeline.fingerprint` of the code that planned.
        losses: accepted gaps.
        origin: the requester, for people: a DAG run id, or "cli".
        planned_at_ms: clock at planning.
        write_id: id of the planner.
        broadcast_versions: for each broadcast state copied from a table, the Delta version that it holds after this
            checkpoint; all attempts copy the same one.
        broadcast_ids: Delta's ids of the same tables.
        copies: the broadcast states whose version the input handle lacks: this checkpoint copies them.
        sinks: for each operator with a sink its table, as the parent left it.
        outboxes: outboxes of sinks that the pipeline no longer declares, by name, as the last checkpoint with them left
            them: waiting rows are still sent, and a restore still knows which were.
        left_behind: state of operators that are no longer declared, by uid.
        queries: per uid the sha256 of each stored query that resolves its state, by name (`sql.resolve`).
        operator_states: for each operator that declares lists their elements, as the parent left them.
        pending: per partition the offsets in the log beyond the range at planning (Flink's pendingRecords); omitted if
            the range reaches the end.
        replays: ids of the completed checkpoints that this one repeats on a fork, in order: ranges, logical time and
            watermark are theirs. Empty for a checkpoint that reads new records.
        parent_revision: revision of the manifest or genesis that it was made from (adr/0015).
        formats: what the format pins (`RecordFormat.freeze`), for each input whose values are not JSON.
        erasures: number of the newest erasure; it and all earlier ones block records of this plan.
    """

    pipeline: str
    id: int
    slot: Slot
    parent: int | None
    ranges: OffsetRanges
    topic_ids: Mapping[str, str]
    sources: Mapping[str, tuple[str, ...]]
    handles: Mapping[str, StateHandle]
    dead_letters: Mapping[str, StateHandle]
    tables: Mapping[str, str]
    schemas: Mapping[str, OperatorSchema]
    adopted: Mapping[str, str]
    logical_time_ms: int
    watermark_ms: int | None
    interval: Interval | None
    covers: bool
    isolation: str
    fingerprint: str
    losses: tuple[Gap, ...]
    origin: str
    planned_at_ms: int
    write_id: str
    watermarks: Mapping[TopicPartition, int] = field(default_factory=dict)
    broadcast_versions: Mapping[str, int] = field(default_factory=dict)
    broadcast_ids: Mapping[str, str] = field(default_factory=dict)
    copies: tuple[str, ...] = ()
    left_behind: Mapping[str, StateHandle] = field(default_factory=dict)
    sinks: Mapping[str, SinkTable] = field(default_factory=dict)
    queries: Mapping[str, Mapping[str, str]] = field(default_factory=dict, metadata=ADDED)
    operator_states: Mapping[str, OperatorState] = field(default_factory=dict, metadata=ADDED)
    pending: Mapping[TopicPartition, int] = field(default_factory=dict, metadata=ADDED)
    replays: tuple[int, ...] = field(default=(), metadata=ADDED)
    parent_revision: int = field(default=0, metadata=ADDED)
    erasures: int = field(default=0, metadata=ADDED)
    outboxes: Mapping[str, SinkTable] = field(default_factory=dict, metadata=ADDED)
    formats: Mapping[str, Mapping[str, str]] = field(default_factory=dict, metadata=ADDED)

    def __post_init__(self) -> None:
        if not (set(self.handles) == set(self.dead_letters) == set(self.tables) == set(self.schemas)):
            raise UsageError(
                "a plan names every operator or cannot be built",
                next="this is a defect of Tidemark: report it.",
            )
        topics = {tp.topic for tp in self.ranges}
        if topics - set(self.topic_ids):
            raise UsageError(
                f"no topic id for {sorted(topics - set(self.topic_ids))}",
                next="this is a defect of Tidemark: report it.",
            )

    @property
    def name(self) -> str:
        """The name of the checkpoint for people: `chk-17`."""
        return f"chk-{self.id}"

    def ranges_of(self, name: str) -> OffsetRanges:
        """Returns the ranges of one input without the empty ones: the offsets to read for it."""
        topics = self.sources.get(name, ())
        return OffsetRanges({tp: r for tp, r in self.ranges.items() if tp.topic in topics and not r.is_empty})

    def format_of(self, topic: str) -> Mapping[str, str]:
        """Returns what the format of a topic's values pins; nothing for JSON."""
        return next((self.formats.get(name, {}) for name, topics in self.sources.items() if topic in topics), {})
