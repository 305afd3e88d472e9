"""The other objects of the store: small, written put-if-absent, never edited."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from tidemark.model.checkpoint.codec import ADDED
from tidemark.model.checkpoint.commits import Commit
from tidemark.model.checkpoint.failure import FailureReason
from tidemark.model.checkpoint.manifest import Revised, Sealed, Verdict
from tidemark.model.checkpoint.plan import Slot
from tidemark.model.checkpoint.segments import OperatorState, StateHandle
from tidemark.model.checkpoint.sinks import SinkTable
from tidemark.model.core.clocks import EventTimeClock
from tidemark.model.core.offsets import OffsetCoverage, OffsetRanges, TopicPartition
from tidemark.model.schema.operator_schema import OperatorSchema


class PutOutcome(Enum):
    """The result of a put-if-absent. Losing a race is a result, not an error."""

    WON = "won"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class IdRecord:
    """`ids/<n>.json`: allocates a checkpoint id and names its slot; gaps are allowed."""

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
    """How an attempt ended."""

    SEALED = "sealed"
    REVOKED = "revoked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """`plans/<timeline>/<seq>.<k>/<attempt>.outcome.json`: sealed and revoked compete for one key.

    Attributes:
        kind: sealed or revoked.
        attempt: the attempt that it ends; attempt 0 exists only so that the owner of attempt 1 can revoke it.
        sealed: all acks, if sealed.
        abort: set if revoked for good: no later attempt may start, and the abort record follows (adr/0003).
        write_id: id of the writer; the writer that revoked n-1 owns attempt n.
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
    """`plans/<timeline>/<seq>.<k>.abort.json`: closes a plan; plan k+1 requires it."""

    id: int
    slot: Slot
    attempts: int
    failure: Failure
    at_ms: int
    write_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Genesis:
    """First record of a restored or forked timeline: the parent's offsets and handles, which it pins at once.

    Attributes:
        timeline: the timeline that it begins.
        parent: id of the checkpoint that it begins at.
        parent_timeline: timeline of that checkpoint.
        why: `restore` or `fork`.
        isolation: Kafka isolation level of the parent's read; empty if unknown.
        request: of a restore, the request: the same request finds it again.
        closes: the live timeline that a restore ends in favour of this one; empty for a fork.
        savepoint: name of the requested savepoint; empty if a checkpoint was requested.
        claim: whether the timeline takes over the savepoint's pin.
        left_behind: state of undeclared operators, by uid, that was allowed and not taken over.
        renamed: old uid to new uid, as in the command.
        note: purpose of a fork, for people.
        at_ms: clock of the writer, for people.
        parent_revision: revision of the parent's manifest when it was taken over.
        revised: why it was revised; None if it was not.
        outboxes: as in a plan.
        keeps_sinks: of a restore: sinks keep what the closed timeline wrote and sent. Its deliveries are read again,
            because one may have ended since.
        sinks_of: of a restore whose sinks continue, id of the checkpoint with those sinks; 0 if they are the parent's.
            It pins both.
        sinks_revision: one more than the revision of the manifest of `sinks_of` when its sinks were taken over; 0 =
            unknown.
        sent: of a restore, the source offsets whose rows were sent and are not sent again, per Kafka sink, including
            those that neither the checkpoint nor the closed timeline has.
        clocks: the clocks after the parent.
        repeats_to: as in a plan: what its first plans repeat, so that windows close as they did in the kept sinks.
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
    sinks_revision: int = field(default=0, metadata=ADDED)
    sent: Mapping[str, OffsetCoverage] = field(default_factory=dict, metadata=ADDED)
    clocks: Mapping[str, EventTimeClock] = field(default_factory=dict, metadata=ADDED)
    repeats_to: int = field(default=0, metadata=ADDED)

    @property
    def revision(self) -> int:
        """The number of its revisions."""
        return 0 if self.revised is None else self.revised.revision

    def is_behind(self, parent_revision: int, sinks_revision: int) -> bool:
        """Whether a key was erased from the manifests that it continues after it had taken them over.

        Args:
            parent_revision: the current revision of `parent`.
            sinks_revision: the current revision of `sinks_of`.
        """
        return parent_revision > self.parent_revision or sinks_revision >= self.sinks_revision > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Closing:
    """Ends a timeline by taking its next slot; names the successor.

    Attributes:
        successor: empty if there is none: the timeline was never live and does not continue.
        why: `restore`, `promote` or `close`.
        at_ms: clock of the writer, for people.
        sent: written by release 0.1 in place of the two below, offsets without topic ids.
        delivered: of a promote, per Kafka sink: the source offsets whose rows the closed timeline has sent.
        withheld: of a promote, per Kafka sink: the source offsets whose rows wait in an outbox of the fork and are not
            sent, because the promote was not asked to send them.
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
        """The state of the timeline in one to three words."""
        return f"closed for {self.successor}" if self.successor else "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionRecord:
    """`compactions/<uid>/<job>.json`: the result of a compaction; only the next plan adopts it.

    Attributes:
        uid: the operator.
        job: key of its job record.
        checkpoint: id of the completed checkpoint whose handle was read.
        timeline: timeline of that checkpoint.
        input: the handle that was read.
        output: the handle with the same contents.
        commits: commits to `base`.
        deepest: whether it merged everything, so that no row remains that hides others.
        revision: revision of the manifest that was read; if it has been revised since, no plan adopts the result.
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
    """`jobs/<id>.json`: a compaction, export, import, patch, transform or erasure; retention keeps its files.

    Attributes:
        job: id of the job.
        kind: `compaction`, `export`, `import`, `patch`, `publication`, `erasure`, `transform`, or `query`: a transform
            reads the checkpoint.
        uid: the operator; empty if the job is about all of them.
        checkpoint: id of the checkpoint that it reads or makes; 0 for an erasure, which reads all of them.
        opened_at_ms: clock of the writer.
        write_id: id of the writer.
        revision: revision of the manifest that a compaction reads.
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
    """`jobs/<id>.end.json`: the job is over, whatever its result. The end of a compaction is its record."""

    job: str
    done: bool
    at_ms: int
    write_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetReport:
    """`reports/<input>/<id>.json`: the result of setting a consumer group's offsets after a checkpoint.

    Attributes:
        input: the pipeline's input.
        group: the consumer group.
        checkpoint: id of the checkpoint whose ends were reported.
        failure: why Kafka did not accept them; None if it did.
        at_ms: clock of the writer, for people.
    """

    input: str
    group: str
    checkpoint: int
    failure: str | None
    at_ms: int
    write_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """`runs/<run>/<n>.json`: how far a run goes that makes several checkpoints, fixed before the first one (adr/0032).

    Attributes:
        run: who runs: a DAG run as `<dag_id>/<run_id>`, or a process of the command line.
        interval_end_ms: end of the data interval; None if the run has none.
        inputs: names of the pipeline's inputs.
        topic_ids: Kafka's id of every topic.
        starts: where each partition's range began.
        ends: where each partition's range ends. A partition that is not listed is none of this run's.
        whole: whether these ends are known to be all of the interval.
        at_ms: clock of the writer.
    """

    run: str
    interval_end_ms: int | None
    inputs: tuple[str, ...]
    topic_ids: Mapping[str, str]
    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    whole: bool
    at_ms: int
    write_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnouncementRecord:
    """`announcements/<id>.json`: a DAG run that succeeded has added events of this checkpoint and those before."""

    checkpoint: int
    at_ms: int
    write_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryRecord:
    """`deliveries/<sink>/<id>.json`: Kafka has acknowledged all outbox rows of a checkpoint.

    Attributes:
        sent: the source offsets whose rows this checkpoint and its ancestors have sent; None in records of release 0.1.
    """

    sink: str
    checkpoint: int
    records: int
    at_ms: int
    write_id: str
    sent: OffsetCoverage | None = field(default=None, metadata=ADDED)


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRecord:
    """`stops/<n>.json`: no plan is made while the newest one says stopped.

    Attributes:
        stopped: whether it stops or resumes.
        why: for people.
        at_ms: clock of the writer, for people.
        savepoint: the savepoint that the pipeline was stopped with; None without one.
        drained: stopped for good: continuing must be forced.
    """

    stopped: bool
    why: str
    at_ms: int
    write_id: str
    savepoint: str | None = field(default=None, metadata=ADDED)
    drained: bool = field(default=False, metadata=ADDED)
