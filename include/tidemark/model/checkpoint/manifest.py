"""Pending and completed checkpoints: one type per phase, so an unfinished one cannot be restored by mistake."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from tidemark.errors import UsageError
from tidemark.model.checkpoint.codec import ADDED
from tidemark.model.checkpoint.offset_coverage import OffsetCoverage
from tidemark.model.checkpoint.operator_lists import OperatorState
from tidemark.model.checkpoint.plan import CheckpointPlan, Interval
from tidemark.model.checkpoint.segments import StateHandle
from tidemark.model.checkpoint.sinks import SinkTable
from tidemark.model.core.offsets import TopicPartition
from tidemark.model.core.ttl import Now


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One Delta commit that a checkpoint relies on.

    Attributes:
        path: table, relative to the warehouse.
        version: Delta version.
        write_id: found in the commit's metadata.
        sha256: of the commit's JSON file, so that `verify` names a later damage.
    """

    path: str
    version: int
    write_id: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Revised:
    """Why a manifest, or a genesis, stands in place of an earlier one (ADR 0015).

    Attributes:
        revision: ascending from 1; the highest one counts.
        predecessor: sha256 of the object that it stands in place of.
        erasure: number of the erasure that wrote it.
        commits: of the erasure, on which its segments rely.
        at_ms: clock of the writer, for people.
        write_id: of the writer.
    """

    revision: int
    predecessor: str
    erasure: int
    commits: tuple[Commit, ...]
    at_ms: int
    write_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ack:
    """What one operator reports for one attempt (E4).

    Attributes:
        uid: the operator.
        handle: its state after this checkpoint.
        dead_letters: handle of its dead-letter table after this checkpoint.
        commits: commits made by this attempt for this uid; empty where nothing was written.
        read: records in the ranges.
        applied: those that were folded; `read == applied + dead_lettered`.
        dead_lettered: those that were not.
        keys: rows of the run = keys touched.
        run_bytes: bytes of the run's files (Flink's checkpointed size).
        timings_ms: per step: read, fold, write, commit.
        emitted: records that its function emitted.
        sink: handle of its sink's table after this checkpoint; empty where it has none.
        operator_state: its lists after this checkpoint; empty where it declares none.
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

    def __post_init__(self) -> None:
        if self.read != self.applied + self.dead_lettered:
            raise UsageError(
                f"{self.uid}: read {self.read} != applied {self.applied} + dead-lettered {self.dead_lettered}",
                next="this is a defect of Tidemark: report it.",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """The outcome of one expectation: frame (`records`, `changes.<uid>`, `state.<uid>`), type, and what was seen."""

    frame: str
    type: str
    success: bool
    severity: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the gate said of a candidate. A pipeline without a gate has an empty, passing one."""

    passed: bool = True
    error: str | None = None
    expectations: tuple[Expectation, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFacts:
    """What the read of the ranges found, over all operators.

    Attributes:
        records: records read, whether decodable or not.
        watermark_ms: greatest event time seen up to and including this batch, per design section 3; None = none.
        bytes: key and value bytes read.
        watermarks: per partition of the pipeline's sources, the greatest event time seen in it so far (J13).
    """

    records: int
    watermark_ms: int | None
    bytes: int
    watermarks: Mapping[TopicPartition, int] = field(default_factory=dict)

    @classmethod
    def after(
        cls, plan: CheckpointPlan, *, records: int, size: int, seen: Mapping[TopicPartition, int]
    ) -> "BatchFacts":
        """The facts of a batch on top of what the plan's parent has seen.

        Args:
            plan: the plan.
            records: records read.
            size: bytes read.
            seen: greatest event time of the batch per partition, where it has a good record.
        """
        marks = dict(plan.watermarks)
        for tp, at in seen.items():
            marks[tp] = max(at, marks.get(tp, at))
        known = [*marks.values()] if plan.watermark_ms is None else [plan.watermark_ms, *marks.values()]
        return cls(records=records, watermark_ms=max(known, default=None), bytes=size, watermarks=marks)


class Acknowledgement(Enum):
    """Answer of `PendingCheckpoint.acknowledge` (Flink's TaskAcknowledgeResult)."""

    SUCCESS = "success"
    DUPLICATE = "duplicate"
    UNKNOWN = "unknown"


class PendingCheckpoint:
    """Collects one ack per operator of a plan; complete when every uid has answered."""

    def __init__(self, plan: CheckpointPlan) -> None:
        self.plan = plan
        self._acks: dict[str, Ack] = {}

    def acknowledge(self, ack: Ack) -> Acknowledgement:
        """Takes an ack; a second one of the same uid and one of an unknown uid change nothing."""
        if ack.uid not in self.plan.handles:
            return Acknowledgement.UNKNOWN
        if ack.uid in self._acks:
            return Acknowledgement.DUPLICATE
        self._acks[ack.uid] = ack
        return Acknowledgement.SUCCESS

    @property
    def acks(self) -> tuple[Ack, ...]:
        """What was acknowledged so far, in the plan's order."""
        return tuple(self._acks[uid] for uid in self.plan.handles if uid in self._acks)

    @property
    def missing(self) -> list[str]:
        """Uids that have not acknowledged."""
        return [uid for uid in self.plan.handles if uid not in self._acks]

    def sealed(self, *, attempt: int, facts: BatchFacts, verdict: Verdict, timings_ms: Mapping[str, int]) -> "Sealed":
        """All there is to publish.

        Raises:
            UsageError: an operator has not acknowledged, so the snapshot would not be global (E5).
        """
        if self.missing:
            raise UsageError(f"no ack of {', '.join(self.missing)}", next="this is a defect of Tidemark: report it.")
        return Sealed(attempt=attempt, acks=self.acks, facts=facts, verdict=verdict, timings_ms=dict(timings_ms))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """A candidate that passed its gate, with all acks; whoever finds it publishes it.

    Attributes:
        attempt: which try.
        acks: of all operators, in the plan's order.
        facts: what the read found.
        verdict: of the gate.
        timings_ms: per step.
        rejected: records that at least one operator could not apply, each counted once. 0 where there are none, and in
            manifests of 0.1, which count per operator only: see `dead_lettered`.
        sealed_at_ms: clock of the attempt when all operators had acknowledged; 0 in manifests of 0.1, whose outcome
            has the time of its put.
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
        """Records that at least one operator could not apply, each counted once; see `dead_lettered_at_most`."""
        return rejected_records(self.rejected, [ack.dead_lettered for ack in self.acks], self.facts.records)[0]

    @property
    def dead_lettered_at_most(self) -> bool:
        """Whether `dead_lettered` is an upper bound: by a manifest of 0.1, operators may share rejected records."""
        return rejected_records(self.rejected, [ack.dead_lettered for ack in self.acks], self.facts.records)[1]


def rejected_records(rejected: int, per_operator: Sequence[int], records: int) -> tuple[int, bool]:
    """How many records were rejected, and whether that is an upper bound.

    Args:
        rejected: as the manifest says; 0 where it does not.
        per_operator: dead letters of each operator.
        records: all that were read.
    """
    if rejected:
        return rejected, False
    some = [count for count in per_operator if count]
    total = sum(some)
    return min(total, records), len(some) > 1 or total > records


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A completed checkpoint; its written form is the manifest, and the put of that is the commit point.

    Built from a plan and what was sealed only, so that every publisher writes the same bytes.

    Attributes:
        plan: the plan, whole.
        sealed: acks of all operators, verdict, counts, timings.
        covered_until_ms: end of the newest interval that this timeline covers; None = none yet.
        revised: why it is not as it was published; None where it is.
    """

    plan: CheckpointPlan
    sealed: Sealed
    covered_until_ms: int | None
    revised: Revised | None = field(default=None, metadata=ADDED)

    def __post_init__(self) -> None:
        # Without regard to order: a plan that was read back names its operators in order of names.
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
        """How often it was revised."""
        return 0 if self.revised is None else self.revised.revision

    @property
    def interval(self) -> Interval | None:
        """The data interval it was made for."""
        return self.plan.interval

    @property
    def now(self) -> Now:
        """What the time is at this checkpoint, on both clocks: state that has expired by then is hidden (B4)."""
        return Now(event_time_ms=self.sealed.facts.watermark_ms, logical_time_ms=self.plan.logical_time_ms)

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
    def sinks(self) -> dict[str, SinkTable]:
        """The table of every sink after this checkpoint, by uid of its operator."""
        after, plan = {a.uid: a.sink for a in self.sealed.acks}, self.plan
        read = OffsetCoverage.of(plan.ranges, plan.topic_ids)

        def completed(table: SinkTable, handle: StateHandle) -> SinkTable:
            covered = table.coverage(plan.topic_ids)
            if table.is_transactional or table.is_sent:
                # 0.1 kept no coverage: there a sink was taken to have all that was ever read.
                covered |= read if table.covered is not None else OffsetCoverage.below(plan.ranges.ends, plan.topic_ids)
            return replace(table, handle=handle, covered=covered)

        return {uid: completed(table, after[uid]) for uid, table in plan.sinks.items()}
