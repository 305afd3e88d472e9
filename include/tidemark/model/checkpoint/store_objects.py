"""The other objects of the store: small, written put-if-absent, never edited (design section 6)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from tidemark.model.checkpoint.codec import ADDED
from tidemark.model.checkpoint.failure import FailureReason
from tidemark.model.checkpoint.manifest import Commit, Revised, Sealed, Verdict
from tidemark.model.checkpoint.offset_coverage import OffsetCoverage
from tidemark.model.checkpoint.operator_lists import OperatorState
from tidemark.model.checkpoint.plan import Slot
from tidemark.model.checkpoint.segments import StateHandle
from tidemark.model.checkpoint.sinks import SinkTable
from tidemark.model.core.offsets import OffsetRanges, TopicPartition
from tidemark.model.schema.operator_schema import OperatorSchema


class PutOutcome(Enum):
    """Answer of a put-if-absent. Losing a race is an answer, not an error."""

    WON = "won"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class IdRecord:
    """`ids/<n>.json`: allocates a checkpoint id and names the slot it was taken for; gaps are allowed."""

    id: int
    slot: Slot
    write_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why an attempt or a plan ended without a checkpoint, in words for the operator."""

    reason: FailureReason
    message: str
    next: str
    verdict: Verdict | None = None


class OutcomeKind(Enum):
    """What became of an attempt."""

    SEALED = "sealed"
    REVOKED = "revoked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """`plans/<timeline>/<seq>.<k>/<attempt>.outcome.json`: sealed and revoked compete for one key.

    Attributes:
        kind: which of the two.
        attempt: the attempt that it ends; attempt 0 exists only to be revoked by the owner of attempt 1.
        sealed: all acks, where sealed.
        abort: where revoked for good: no later attempt may start, the abort record follows (ADR 0003).
        write_id: of the writer; the one that revoked n-1 owns attempt n.
        at_ms: clock of the writer, for people.
    """

    kind: OutcomeKind
    attempt: int
    sealed: Sealed | None
    abort: Failure | None
    write_id: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortRecord:
    """`plans/<timeline>/<seq>.<k>.abort.json`: closes a plan; plan k+1 needs it."""

    id: int
    slot: Slot
    attempts: int
    failure: Failure
    at_ms: int
    write_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Genesis:
    """First record of a restored or forked timeline: the parent's offsets and handles, so it pins them at once.

    Attributes:
        timeline: the one that it begins.
        parent: id of the checkpoint that it begins at.
        parent_timeline: of that checkpoint.
        why: `restore` or `fork`.
        isolation: Kafka isolation level of the parent's read; empty where unknown.
        request: what it was asked for by: the same request finds it again (of a restore).
        closes: the timeline that was live, which a restore ends in favour of this one; empty for a fork.
        savepoint: name of the savepoint that was asked for; empty where it was a checkpoint.
        claim: whether the savepoint's pin is handed over to the timeline (G10).
        left_behind: state of operators that were not declared, by uid: allowed, and not taken over (G11).
        renamed: old uid to new uid, as the command said.
        note: what a fork is for, for people.
        at_ms: clock of the writer, for people.
        parent_revision: of the parent's manifest, as it was taken over.
        revised: why it is not as it was put; None where it is.
        outboxes: as those of a plan.
        keeps_sinks: of a restore: sinks keep what the closed timeline wrote and sent. What that one has sent is looked
            at again, for a delivery may have ended since.
        sinks_of: of a restore whose sinks go on, id of the checkpoint whose sinks those are; 0 where they are the
            parent's. It pins both.
        sent: of a restore, per Kafka sink, also of those that neither the checkpoint nor the closed timeline has: the
            source offsets whose rows were sent and are not sent again.
    """

    timeline: str
    sequence: int
    parent: int
    parent_timeline: str
    ranges: OffsetRanges
    topic_ids: Mapping[str, str]
    handles: Mapping[str, StateHandle]
    dead_letters: Mapping[str, StateHandle]
    schemas: Mapping[str, OperatorSchema]
    logical_time_ms: int
    watermark_ms: int | None
    covered_until_ms: int | None
    why: str
    write_id: str
    sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    watermarks: Mapping[TopicPartition, int] = field(default_factory=dict)
    broadcast_versions: Mapping[str, int] = field(default_factory=dict)
    broadcast_ids: Mapping[str, str] = field(default_factory=dict)
    sinks: Mapping[str, SinkTable] = field(default_factory=dict)
    operator_states: Mapping[str, OperatorState] = field(default_factory=dict, metadata=ADDED)
    isolation: str = field(default="", metadata=ADDED)
    request: str = field(default="", metadata=ADDED)
    closes: str = field(default="", metadata=ADDED)
    savepoint: str = field(default="", metadata=ADDED)
    claim: bool = field(default=False, metadata=ADDED)
    left_behind: Mapping[str, StateHandle] = field(default_factory=dict, metadata=ADDED)
    renamed: Mapping[str, str] = field(default_factory=dict, metadata=ADDED)
    at_ms: int = field(default=0, metadata=ADDED)
    note: str = field(default="", metadata=ADDED)
    parent_revision: int = field(default=0, metadata=ADDED)
    revised: Revised | None = field(default=None, metadata=ADDED)
    outboxes: Mapping[str, SinkTable] = field(default_factory=dict, metadata=ADDED)
    keeps_sinks: bool = field(default=False, metadata=ADDED)
    sinks_of: int = field(default=0, metadata=ADDED)
    sent: Mapping[str, OffsetCoverage] = field(default_factory=dict, metadata=ADDED)

    @property
    def revision(self) -> int:
        """How often it was revised."""
        return 0 if self.revised is None else self.revised.revision


@dataclass(frozen=True, slots=True, kw_only=True)
class Closing:
    """Ends a timeline by taking its next slot; names the successor.

    Attributes:
        successor: empty where there is none: the timeline was never live, and nobody goes on with it.
        why: `restore`, `promote` or `close`.
        at_ms: clock of the writer, for people.
        sent: written by 0.1 in place of the two below, offsets without topic ids.
        delivered: of a promote, per Kafka sink: the source offsets whose rows the closed timeline has sent.
        withheld: of a promote, per Kafka sink: the source offsets whose rows wait in an outbox of the fork and are not
            sent, because the promote was not asked to (J2).
    """

    timeline: str
    sequence: int
    successor: str
    why: str
    write_id: str
    at_ms: int = field(default=0, metadata=ADDED)
    sent: Mapping[str, Mapping[TopicPartition, int]] = field(default_factory=dict, metadata=ADDED)
    delivered: Mapping[str, OffsetCoverage] = field(default_factory=dict, metadata=ADDED)
    withheld: Mapping[str, OffsetCoverage] = field(default_factory=dict, metadata=ADDED)

    @property
    def fate(self) -> str:
        """What has become of the timeline, in one word or three."""
        return f"closed for {self.successor}" if self.successor else "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionRecord:
    """`compactions/<uid>/<job>.json`: what a compaction made; only the next plan adopts it.

    Attributes:
        uid: the operator.
        job: key of its job record.
        checkpoint: id of the completed checkpoint whose handle was read.
        timeline: of that checkpoint.
        input: the handle that was read.
        output: the handle that answers the same.
        commits: commits to `base`.
        deepest: whether it has merged all that lay below: no row is left that hides others.
        revision: of the manifest that was read; where it was revised since, nobody adopts the result.
    """

    uid: str
    job: str
    checkpoint: int
    timeline: str
    input: StateHandle
    output: StateHandle
    commits: tuple[Commit, ...]
    write_id: str
    deepest: bool = field(default=False, metadata=ADDED)
    revision: int = field(default=0, metadata=ADDED)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """`jobs/<id>.json`: an open compaction, export, import, patch or erasure: retention leaves what it reads alone.

    Attributes:
        job: its id.
        kind: `compaction`, `export`, `import`, `patch` or `erasure`.
        uid: the operator; empty where it is all of them.
        checkpoint: id of the checkpoint that it reads, or makes; 0 for an erasure, which reads all of them.
        opened_at_ms: clock of the writer.
        write_id: of the writer.
        revision: of the manifest that a compaction reads.
    """

    job: str
    kind: str
    uid: str
    checkpoint: int
    opened_at_ms: int
    write_id: str
    revision: int = field(default=0, metadata=ADDED)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnd:
    """`jobs/<id>.end.json`: the job is over, whatever came of it. That of a compaction is its record."""

    job: str
    done: bool
    at_ms: int
    write_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetReport:
    """`reports/<input>/<id>.json`: what came of setting a consumer group's offsets after a checkpoint (J10, J14).

    Attributes:
        input: the pipeline's input.
        group: the consumer group.
        checkpoint: id of the checkpoint whose ends were reported.
        failure: why Kafka did not take them; None where it did.
        at_ms: clock of the writer, for people.
    """

    input: str
    group: str
    checkpoint: int
    failure: str | None
    at_ms: int
    write_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryRecord:
    """`deliveries/<sink>/<id>.json`: the outbox rows of a checkpoint were all acknowledged by Kafka.

    Attributes:
        sent: the source offsets whose rows the line of checkpoints up to this one has sent; None in records of 0.1.
    """

    sink: str
    checkpoint: int
    records: int
    at_ms: int
    write_id: str
    sent: OffsetCoverage | None = field(default=None, metadata=ADDED)


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRecord:
    """`stops/<n>.json`: no plan is made while the newest one says stopped (design section 6).

    Attributes:
        stopped: whether it stops or resumes.
        why: for people.
        at_ms: clock of the writer, for people.
        savepoint: the one that the pipeline was stopped with; None where it was stopped without.
        drained: stopped for good: to go on wants to be forced (G3).
    """

    stopped: bool
    why: str
    at_ms: int
    write_id: str
    savepoint: str | None = field(default=None, metadata=ADDED)
    drained: bool = field(default=False, metadata=ADDED)
