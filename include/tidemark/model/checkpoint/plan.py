"""The plan of a checkpoint: everything that decides its result, frozen before anything is read."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidemark.errors import UsageError
from tidemark.model.checkpoint.codec import ADDED
from tidemark.model.checkpoint.redrive import Redrive
from tidemark.model.checkpoint.segments import OperatorState, StateHandle, current_rows_path
from tidemark.model.checkpoint.sinks import SinkTable
from tidemark.model.columns.declared_columns import DeclaredColumns
from tidemark.model.core.clocks import EventTimeClock, PlannedClock, clocks_after
from tidemark.model.core.names import checked_name, operator_of
from tidemark.model.core.offsets import OffsetRange, OffsetRanges, TopicPartition
from tidemark.model.core.types import FieldType
from tidemark.model.schema.operator_schema import OperatorSchema


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
        covers: whether completing this plan covers `interval`, or ends the run that has none (false if a bound cut it).
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
        sinks: for each output with a sink its table, as the parent left it. The uid of an operator's first output is
            that of the operator, of any other `<uid>.<name>`.
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
        run: id of the run that planned it to the run's ends (`coordinator.plans.runs`); empty if nothing bounds the
            pipeline's checkpoints.
        reduced_to: how many offsets the plan might read, if earlier plans of the backlog were too much; 0 = the whole
            bound.
        redrives: dead letters of the parent that it redrives, per operator (adr/0040).
        requests_seen: number of the newest request for a redrive that it or an ancestor on its timeline has seen.
        inputs: per uid the source or the output that an operator reads, for the graph of a checkpoint; empty if no
            operator is a FlatMap, has windows or several outputs.
        clocks: the rule of each source that declares a watermark, and its clock after the parent (adr/0052).
        caps_event_time: whether an event time ahead of the logical time counts as that for accesses of state and for
            the watermark (adr/0053); not in plans of release 0.1.
        repeats_to: id of the checkpoint up to which the timeline still has to repeat recorded ones after this plan,
            because its sinks have their closed windows (adr/0057); 0 = nothing is left to repeat.
        sinks_are_ahead: whether its sinks were kept by a restore and have its rows already, because it repeats a cut.
        event_times: of each source whose records a fold with windows gets, where they have their event time: a struct
            with no other field, empty for Kafka's timestamp. Pages find the records of a window by it.
        drains: whether it reads nothing and moves all frontiers to the end of time, so that all windows close; no plan
            is made behind it (adr/0061).
        columns: what the lineage of columns needs of the declaration (adr/0075); None in plans of earlier releases.
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
    run: str = field(default="", metadata=ADDED)
    reduced_to: int = field(default=0, metadata=ADDED)
    redrives: tuple[Redrive, ...] = field(default=(), metadata=ADDED)
    requests_seen: int = field(default=0, metadata=ADDED)
    inputs: Mapping[str, str] = field(default_factory=dict, metadata=ADDED)
    clocks: Mapping[str, PlannedClock] = field(default_factory=dict, metadata=ADDED)
    caps_event_time: bool = field(default=False, metadata=ADDED)
    repeats_to: int = field(default=0, metadata=ADDED)
    sinks_are_ahead: bool = field(default=False, metadata=ADDED)
    event_times: Mapping[str, FieldType] = field(default_factory=dict, metadata=ADDED)
    drains: bool = field(default=False, metadata=ADDED)
    columns: DeclaredColumns | None = field(default=None, metadata=ADDED)

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

    def sinks_of(self, uid: str) -> dict[str, SinkTable]:
        """Returns the sinks of an operator by the uids of their outputs."""
        return {output: table for output, table in self.sinks.items() if operator_of(output, self.schemas) == uid}

    @property
    def rows_at_most(self) -> int | None:
        """Upper bound of the records; None = unknown, because a table is copied."""
        return None if self.copies else self.ranges.span + sum(redrive.count for redrive in self.redrives)

    def access_ms(self, event_time_ms: int) -> int:
        """Returns when a record accesses state that expires by event time: never before the watermark of the plan."""
        at = min(event_time_ms, self.logical_time_ms) if self.caps_event_time else event_time_ms
        return at if self.watermark_ms is None else max(at, self.watermark_ms)

    def redrive_of(self, uid: str) -> Redrive | None:
        """Returns the dead letters that an operator gets again; None if there are none."""
        return next((redrive for redrive in self.redrives if redrive.uid == uid), None)

    def ranges_of(self, name: str) -> OffsetRanges:
        """Returns the ranges of one input without the empty ones: the offsets to read for it."""
        topics = self.sources.get(name, ())
        return OffsetRanges({tp: r for tp, r in self.ranges.items() if tp.topic in topics and not r.is_empty})

    def clocks_after(self, read: Mapping[TopicPartition, int]) -> dict[str, EventTimeClock]:
        """Returns the clocks after its records; `read` has the greatest event time per partition with good ones."""
        owned = {name: self.sources.get(name, ()) for name in self.clocks}
        partitions = {name: [tp for tp in self.ranges if tp.topic in topics] for name, topics in owned.items()}
        return clocks_after(self.clocks, partitions, self.logical_time_ms, read, drains=self.drains)

    def frontier_before(self, uid: str) -> int | None:
        """Returns the frontier of an operator with windows before its records; None = nothing is closed yet."""
        clock = self.clocks.get(uid)
        return None if clock is None else clock.before.watermark_ms

    def source_of(self, uid: str) -> str | None:
        """Returns the source whose records reach an operator or an output, directly or through other operators.

        None if the plan does not say: see `inputs`.
        """
        at = operator_of(uid, self.schemas)
        while (name := self.inputs.get(at)) is not None and name not in self.sources:
            at = operator_of(name, self.schemas)
        return name

    def format_of(self, topic: str) -> Mapping[str, str]:
        """Returns what the format of a topic's values pins; nothing for JSON."""
        return next((self.formats.get(name, {}) for name, topics in self.sources.items() if topic in topics), {})


def dead_letters_path(pipeline: str, uid: str, timeline: str) -> str:
    """Returns an operator's dead-letter table on a timeline, relative to the warehouse."""
    return current_rows_path(f"{pipeline}/dead_letters/{uid}/{timeline}")
