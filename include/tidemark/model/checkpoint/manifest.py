"""Pending and completed checkpoints: one type per phase, so an unfinished one cannot be restored by mistake.

With the values that an attempt writes and commits on its way there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum

from tidemark.errors import UsageError
from tidemark.model.checkpoint.codec import ADDED
from tidemark.model.checkpoint.commits import Commit
from tidemark.model.checkpoint.emitted import emitted_by
from tidemark.model.checkpoint.plan import CheckpointPlan, Interval
from tidemark.model.checkpoint.segments import OperatorState, StateHandle, WrittenFile
from tidemark.model.checkpoint.sinks import SinkTable
from tidemark.model.core.clocks import EventTimeClock
from tidemark.model.core.offsets import OffsetCoverage, TopicPartition
from tidemark.model.core.ttl import Now


@dataclass(frozen=True, slots=True, kw_only=True)
class Revised:
    """Why a manifest or a genesis replaces an earlier one (adr/0015).

    Attributes:
        revision: ascending from 1; the highest one counts.
        predecessor: sha256 of the object that it replaces.
        erasure: number of the erasure that wrote it.
        commits: commits of the erasure that its segments need.
        at_ms: clock of the writer, for people.
        write_id: id of the writer.
    """

    revision: int
    predecessor: str
    erasure: int
    commits: tuple[Commit, ...]
    at_ms: int
    write_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputAck:
    """The report of one output of an operator.

    Attributes:
        emitted: number of its records.
        sink: handle of its sink's table after this checkpoint; empty without a sink.
    """

    emitted: int = 0
    sink: StateHandle = field(default=StateHandle())


@dataclass(frozen=True, slots=True, kw_only=True)
class Ack:
    """The report of one operator for one attempt.

    Attributes:
        uid: the operator.
        handle: its state after this checkpoint.
        dead_letters: handle of its dead-letter table after this checkpoint.
        commits: commits made by this attempt for this uid; empty if nothing was written.
        read: records in the ranges.
        applied: number of folded records; `read + redriven == applied + filtered + dead_lettered`.
        dead_lettered: number of records that it could not apply.
        keys: rows of the run = keys touched.
        run_bytes: bytes of the run's files (Flink's checkpointed size).
        timings_ms: milliseconds per step: read, fold, write, commit.
        emitted: records that its function emitted; of several outputs, to the first one.
        sink: handle of its sink's table after this checkpoint; empty without a sink. Of several outputs, of the first.
        operator_state: its lists after this checkpoint; empty if it declares none.
        redriven: dead letters of earlier checkpoints that it got again, without those of erased keys.
        refused_again: those that it refused again, if there are any and its records reach a sink.
        outputs: of several outputs the report of each after the first one, by its uid.
        filtered: number of records that its declaration leaves out; they are neither applied nor dead letters.
        late: records whose window had closed: dead letters, or filtered ones if they are rows of an output.
        fired: number of timers that fired.
    """

    uid: str
    handle: StateHandle
    dead_letters: StateHandle
    commits: tuple[Commit, ...]
    read: int
    applied: int
    dead_lettered: int
    keys: int
    run_bytes: int
    timings_ms: Mapping[str, int]
    emitted: int = 0
    sink: StateHandle = field(default=StateHandle())
    operator_state: OperatorState = field(default=OperatorState(), metadata=ADDED)
    redriven: int = field(default=0, metadata=ADDED)
    refused_again: OffsetCoverage | None = field(default=None, metadata=ADDED)
    outputs: Mapping[str, OutputAck] = field(default_factory=dict, metadata=ADDED)
    filtered: int = field(default=0, metadata=ADDED)
    late: int = field(default=0, metadata=ADDED)
    fired: int = field(default=0, metadata=ADDED)

    def __post_init__(self) -> None:
        if self.read + self.redriven != self.applied + self.filtered + self.dead_lettered:
            raise UsageError(
                f"{self.uid}: read {self.read} + redriven {self.redriven}"
                f" != applied {self.applied} + filtered {self.filtered} + dead-lettered {self.dead_lettered}",
                next="this is a defect of Tidemark: report it.",
            )

    @property
    def by_output(self) -> dict[str, OutputAck]:
        """The report of every output, by its uid; of an operator that emits nothing an empty one."""
        return {self.uid: OutputAck(emitted=self.emitted, sink=self.sink), **self.outputs}

    @property
    def emitted_to_all(self) -> int:
        """Records that its function emitted, to all outputs."""
        return sum(output.emitted for output in self.by_output.values())

    @property
    def sinks(self) -> tuple[StateHandle, ...]:
        """The handles of the tables of its sinks."""
        return tuple(output.sink for output in self.by_output.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """The outcome of one expectation: its frame (`records`, `changes.<uid>`, `state.<uid>`), type, and details."""

    frame: str
    type: str
    success: bool
    severity: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The gate's verdict on a candidate; for a pipeline without a gate it is empty and passes."""

    passed: bool = True
    error: str | None = None
    expectations: tuple[Expectation, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFacts:
    """The result of reading the ranges, over all operators.

    Attributes:
        records: records read, whether decodable or not.
        watermark_ms: greatest event time up to and including this batch; None = no event time yet. One that is ahead of
            its checkpoint's logical time counts as that.
        bytes: key and value bytes read.
        watermarks: greatest event time so far per partition of the pipeline's sources.
        unknown_schemas: per registry the ids of schemas that it did not know; values that name them are dead letters.
        schemas: per registry the ids of schemas by which records were decoded, redriven dead letters too; a replay
            needs them. Ids that the parent lists are taken over (adr/0043), so a record need not name each.
        clocks: the watermark of each source that has one, and the frontier of each operator with windows, by name.
    """

    records: int
    watermark_ms: int | None
    bytes: int
    watermarks: Mapping[TopicPartition, int] = field(default_factory=dict)
    unknown_schemas: Mapping[str, tuple[int, ...]] = field(default_factory=dict, metadata=ADDED)
    schemas: Mapping[str, tuple[int, ...]] = field(default_factory=dict, metadata=ADDED)
    clocks: Mapping[str, EventTimeClock] = field(default_factory=dict, metadata=ADDED)

    @classmethod
    def after(
        cls, plan: CheckpointPlan, *, records: int, size: int, seen: Mapping[TopicPartition, int]
    ) -> "BatchFacts":
        """Combines the facts of a batch with those of the plan's parent.

        Args:
            plan: the plan.
            records: records read.
            size: bytes read.
            seen: greatest event time of the batch per partition that has a good record.
        """
        marks = dict(plan.watermarks)
        for tp, found in seen.items():
            at = min(found, plan.logical_time_ms) if plan.caps_event_time else found
            marks[tp] = max(at, marks.get(tp, at))
        known = [*marks.values()] if plan.watermark_ms is None else [plan.watermark_ms, *marks.values()]
        facts = cls(records=records, watermark_ms=max(known, default=None), bytes=size, watermarks=marks)
        return replace(facts, clocks=plan.clocks_after(seen)) if plan.clocks else facts

    def now(self, plan: CheckpointPlan) -> Now:
        """Returns the time after the checkpoint with these facts."""
        frontiers = {uid: at.watermark_ms for uid, at in self.clocks.items() if uid in plan.schemas}
        return Now(
            event_time_ms=self.watermark_ms,
            logical_time_ms=plan.logical_time_ms,
            frontiers={uid: ms for uid, ms in frontiers.items() if ms is not None},
        )


class Acknowledgement(Enum):
    """The result of `PendingCheckpoint.acknowledge` (Flink's TaskAcknowledgeResult)."""

    SUCCESS = "success"
    DUPLICATE = "duplicate"
    UNKNOWN = "unknown"


class PendingCheckpoint:
    """Collects one ack per operator of a plan; it is complete when every uid has acknowledged."""

    def __init__(self, plan: CheckpointPlan) -> None:
        self.plan = plan
        self._acks: dict[str, Ack] = {}

    def acknowledge(self, ack: Ack) -> Acknowledgement:
        """Takes an ack; a second ack of the same uid, or one of an unknown uid, changes nothing."""
        if ack.uid not in self.plan.handles:
            return Acknowledgement.UNKNOWN
        if ack.uid in self._acks:
            return Acknowledgement.DUPLICATE
        self._acks[ack.uid] = ack
        return Acknowledgement.SUCCESS

    @property
    def acks(self) -> tuple[Ack, ...]:
        """The acks so far, in the plan's order."""
        return tuple(self._acks[uid] for uid in self.plan.handles if uid in self._acks)

    @property
    def missing(self) -> list[str]:
        """Uids that have not acknowledged."""
        return [uid for uid in self.plan.handles if uid not in self._acks]

    def seal(self, *, attempt: int, facts: BatchFacts, verdict: Verdict, timings_ms: Mapping[str, int]) -> "Sealed":
        """Returns everything that is to be published.

        Raises:
            UsageError: an operator has not acknowledged, so the snapshot would not be global.
        """
        if self.missing:
            raise UsageError(f"no ack of {', '.join(self.missing)}", next="this is a defect of Tidemark: report it.")
        return Sealed(attempt=attempt, acks=self.acks, facts=facts, verdict=verdict, timings_ms=dict(timings_ms))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """A candidate that passed its gate, with all acks; any process that finds it may publish it.

    Attributes:
        attempt: number of the attempt.
        acks: acks of all operators, in the plan's order.
        facts: facts of the batch.
        verdict: verdict of the gate.
        timings_ms: milliseconds per step.
        rejected: records that at least one operator could not apply; each counts once. It is 0 if there are none, and
            in manifests of release 0.1, which count per operator only: see `dead_lettered`.
        sealed_at_ms: clock of the attempt when all operators had acknowledged; 0 in manifests of release 0.1, whose
            outcome has the time of its put.
    """

    attempt: int
    acks: tuple[Ack, ...]
    facts: BatchFacts
    verdict: Verdict
    timings_ms: Mapping[str, int]
    rejected: int = field(default=0, metadata=ADDED)
    sealed_at_ms: int = field(default=0, metadata=ADDED)

    @property
    def run_bytes(self) -> int:
        """Bytes of the runs that it wrote: the increment (Flink's checkpointed size)."""
        return sum(ack.run_bytes for ack in self.acks)

    @property
    def full_bytes(self) -> int:
        """Bytes of all state that it names."""
        return sum(ack.handle.bytes for ack in self.acks)

    @property
    def dead_lettered(self) -> int:
        """Records that at least one operator could not apply; each counts once. See `dead_lettered_at_most`."""
        return rejected_records(self.rejected, [ack.dead_lettered for ack in self.acks], self.facts.records)[0]

    @property
    def dead_lettered_at_most(self) -> bool:
        """Whether `dead_lettered` is an upper bound: in manifests of 0.1, operators may share rejected records."""
        return rejected_records(self.rejected, [ack.dead_lettered for ack in self.acks], self.facts.records)[1]


def rejected_records(rejected: int, per_operator: Sequence[int], records: int) -> tuple[int, bool]:
    """Returns how many records were rejected, and whether that is an upper bound.

    Args:
        rejected: number in the manifest; 0 if it has none.
        per_operator: dead letters of each operator.
        records: number of records read.
    """
    if rejected:
        return rejected, False
    some = [count for count in per_operator if count]
    total = sum(some)
    return min(total, records), len(some) > 1 or total > records


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A completed checkpoint. Its written form is the manifest, and putting that is the commit point.

    It is built only from a plan and a sealed candidate, so every publisher writes the same bytes.

    Attributes:
        plan: the complete plan.
        sealed: acks of all operators, verdict, counts, timings.
        covered_until_ms: end of the newest interval that this timeline covers; None = none yet.
        revised: why it was revised; None if it was not.
    """

    plan: CheckpointPlan
    sealed: Sealed
    covered_until_ms: int | None
    revised: Revised | None = field(default=None, metadata=ADDED)

    def __post_init__(self) -> None:
        # Compared regardless of order: a plan read from a file lists its operators ordered by name.
        acked = [a.uid for a in self.sealed.acks]
        if sorted(acked) != sorted(self.plan.handles):
            raise UsageError(
                f"a manifest names every operator: planned {sorted(self.plan.handles)}, acknowledged {sorted(acked)}",
                next="this is a defect of Tidemark: report it.",
            )

    @property
    def id(self) -> int:
        """Checkpoint id."""
        return self.plan.id

    @property
    def revision(self) -> int:
        """The number of its revisions."""
        return 0 if self.revised is None else self.revised.revision

    @property
    def interval(self) -> Interval | None:
        """The data interval it was made for."""
        return self.plan.interval

    @property
    def now(self) -> Now:
        """The time at this checkpoint, on both clocks: state that has expired by then is hidden."""
        return self.sealed.facts.now(self.plan)

    @property
    def source_clocks(self) -> dict[str, EventTimeClock]:
        """The clock of each source that has one, by name."""
        return {name: clock for name, clock in self.sealed.facts.clocks.items() if name in self.plan.sources}

    def ack(self, uid: str) -> Ack | None:
        """The ack of an operator."""
        return next((a for a in self.sealed.acks if a.uid == uid), None)

    @property
    def handles(self) -> dict[str, StateHandle]:
        """State handle per uid."""
        return {a.uid: a.handle for a in self.sealed.acks}

    @property
    def operator_states(self) -> dict[str, OperatorState]:
        """The lists of every operator that declares some, by uid."""
        return {a.uid: a.operator_state for a in self.sealed.acks if a.operator_state}

    @property
    def outputs(self) -> dict[str, OutputAck]:
        """The report of every output, by its uid."""
        return {uid: output for ack in self.sealed.acks for uid, output in ack.by_output.items()}

    @property
    def sinks(self) -> dict[str, SinkTable]:
        """The table of every sink after this checkpoint, by the uid of its output.

        One of 0.1 counts as having all that was ever read.
        """
        after, plan = self.outputs, self.plan

        def completed(uid: str, table: SinkTable) -> SinkTable:
            covered = table.coverage(plan.topic_ids)
            if table.is_transactional or table.is_sent:
                is_old, below = table.covered is None, OffsetCoverage.below(plan.ranges.ends, plan.topic_ids)
                covered |= below if is_old else emitted_by(plan, uid, self.sealed.facts.clocks)
            return replace(table, handle=after[uid].sink, covered=covered)

        return {uid: completed(uid, table) for uid, table in plan.sinks.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenRun:
    """Files of one run or one compaction output, before their commit. `rows` is what the write reported."""

    rows: int
    files: tuple[WrittenFile, ...]

    @property
    def bytes(self) -> int:
        """Bytes of all files."""
        return sum(f.size for f in self.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class UidCounts:
    """Records of one operator in the batch, and the number that it emitted per output, by the uids of its outputs.

    `read + redriven == applied + filtered + dead_lettered`; `refused_again` of the redriven ones are dead letters, and
    `late` of the others, or filtered. `operator_state` holds the lists that a process left, if any. `refused_records`:
    only if a sink is behind. `fired`: timers, which may change state although no record is applied.
    """

    applied: int
    dead_lettered: int
    emitted: Mapping[str, int] = field(default_factory=dict)
    operator_state: OperatorState | None = None
    redriven: int = 0
    refused_again: int = 0
    refused_records: OffsetCoverage | None = None
    filtered: int = 0
    late: int = 0
    fired: int = 0

    @property
    def read(self) -> int:
        """Records in the ranges of the plan that the operator got."""
        return self.applied + self.filtered + self.dead_lettered - self.redriven

    def with_redriven(self, *, applied: int, refused: int, filtered: int = 0) -> "UidCounts":
        """Adds redriven records."""
        return replace(
            self,
            applied=self.applied + applied,
            filtered=self.filtered + filtered,
            dead_lettered=self.dead_lettered + refused,
            redriven=self.redriven + applied + filtered + refused,
            refused_again=self.refused_again + refused,
        )

    def after(
        self,
        *,
        failed: int,
        emitted: Mapping[str, int],
        operator_state: OperatorState | None,
        failed_again: int = 0,
        fired: int = 0,
    ) -> "UidCounts":
        """After the function of an operator was called: some of the records failed, `failed_again` redriven ones."""
        return replace(
            self,
            applied=self.applied - failed,
            dead_lettered=self.dead_lettered + failed,
            emitted=emitted,
            operator_state=operator_state,
            refused_again=self.refused_again + failed_again,
            fired=fired,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """The options of the next checkpoint.

    Attributes:
        origin: the requester: a DAG run id, or "cli".
        interval_end: end of the data interval, or None.
        interval_start: its start, or None.
        until_interval_end: cap ends at the first record whose timestamp reaches `interval_end`.
        max_records: how many records the checkpoint may read, over all partitions; None = as the pipeline declares.
        accept_loss: record gaps instead of stopping.
        allow_non_restored_state: drop the state of operators that the pipeline no longer declares.
        accept_time: accept the logical time, however far it is from all known times.
        replay_to: on a fork, repeat recorded checkpoints up to this id instead of reading new records; `max_records`
            then bounds one step, which repeats one or several checkpoints.
        run: who runs, if a request that a bound cuts is continued by further checkpoints up to the same ends: a DAG run
            as `<dag_id>/<run_id>`, or a process of the command line. Empty = each plan goes to the log's end.
        continues: whether the caller has just completed a checkpoint: a bounded run makes no pause then.
        drains: see `CheckpointPlan`.
    """

    origin: str
    interval_start: datetime | None = None
    interval_end: datetime | None = None
    until_interval_end: bool = False
    max_records: int | None = None
    accept_loss: bool = False
    allow_non_restored_state: bool = False
    accept_time: bool = False
    replay_to: int | None = None
    run: str = ""
    continues: bool = False
    drains: bool = False
