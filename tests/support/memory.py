"""A pipeline in memory, the base of the coordinator's unit tests and of the simulation."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from tidemark.coordinator.checkpoints.attempts import OwnedAttempt
from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.checkpoints.job import CheckpointJob, ignore_step
from tidemark.coordinator.checkpoints.jobs import refuse_doomed
from tidemark.coordinator.checkpoints.loop import CheckpointLoop, Progress
from tidemark.coordinator.checkpoints.row_compactor import RowCompactor
from tidemark.coordinator.records.states import Completed, OpenPlan, SealedPlan
from tidemark.coordinator.records.timelines import Erasures
from tidemark.coordinator.recovery.promotion import Promotion
from tidemark.coordinator.recovery.restore import Recovery
from tidemark.coordinator.recovery.savepoints import Savepoints
from tidemark.declare.pipeline import Pipeline
from tidemark.model.checkpoint.commits import CommitRequest
from tidemark.model.checkpoint.manifest import Checkpoint, Sealed
from tidemark.model.checkpoint.object_keys import compaction_key
from tidemark.model.checkpoint.row_tables import row_tables
from tidemark.model.checkpoint.segments import StateHandle
from tidemark.model.checkpoint.store_objects import CompactionRecord, JobRecord
from tidemark.model.state.row_compaction import RowPolicy
from tidemark.ports import CheckpointStore, PlanRequest, PutOutcome, StepListener
from tidemark.storage.read_ahead import AT_NEED, AT_START, ReadAheadStore
from tidemark.testing.twin.entries import state_rows
from tidemark.testing.twin.memory import ManualClock, MemoryCompute, MemoryLog, MemoryStore, MemoryTables, SequentialIds
from tidemark.testing.twin.merge import compact_rows
from tidemark.testing.twin.row_files import MemoryRowFiles

START_MS = 1_000_000
"""The initial time of a test's clock."""


@dataclass(frozen=True)
class Payment:
    """One record."""

    account: str | None
    amount: int


def payment(account: str | None, amount: int) -> bytes:
    """Encodes a payment as the value of a Kafka message; without an account, the field is missing."""
    return (f'{{"account":"{account}","amount":{amount}}}' if account else f'{{"amount":{amount}}}').encode()


class Unfenced:
    """A fence for work outside an attempt, which nothing can revoke."""

    def check(self) -> None:
        """Always passes."""


def dag_run(loop: CheckpointLoop, request: PlanRequest) -> Progress:
    """Runs the tasks of an uninterrupted DAG run: plan, fold and complete."""
    planned = loop.plan(request)
    if not isinstance(planned.state, OpenPlan):
        return planned
    folded = loop.fold(planned.state.plan, request)
    if not isinstance(folded.state, SealedPlan):
        return replace(folded, checkpoints=planned.checkpoints + folded.checkpoints)
    done = loop.complete(folded.state.plan)
    made = (*planned.checkpoints, *folded.checkpoints, *([done.checkpoint] if isinstance(done, Completed) else ()))
    return Progress(state=done, checkpoints=made)


@dataclass(kw_only=True, eq=False)
class MemoryPipeline:
    """A pipeline over in-memory parts; subclasses may wrap the parts."""

    store: CheckpointStore = field(default_factory=MemoryStore)
    log: MemoryLog = field(default_factory=MemoryLog)
    tables: MemoryTables = field(default_factory=MemoryTables)
    clock: ManualClock = field(default_factory=lambda: ManualClock(START_MS))
    ids: Callable[[], str] = field(default_factory=SequentialIds)
    reads_ahead: bool = False
    """Whether each coordinator reads ahead, as over a bucket."""
    heads: dict[str, int] = field(default_factory=dict)
    """What processes remember of heads, if they read ahead."""
    answers_late: bool = False
    """Whether reads that nothing waits for are answered when they are needed, and not when they are started."""
    name = "PIPELINE"

    @property
    def coordinator(self) -> CheckpointCoordinator:
        """A new coordinator over these parts, as every process has one."""
        return CheckpointCoordinator(
            store=self._far_store() if self.reads_ahead else self.store,
            log=self.log,
            clock=self.clock,
            write_ids=self.ids,
            files_exist=self.tables.files_exist,
            find_letters=self.tables.find_letters,
            name=self.name,
        )

    def _far_store(self) -> ReadAheadStore:
        return ReadAheadStore(self.store, at_once=AT_NEED if self.answers_late else AT_START, heads=self.heads)

    @property
    def savepoints(self) -> Savepoints:
        """The savepoints of the pipeline."""
        return Savepoints(self.coordinator)

    @property
    def recovery(self) -> Recovery:
        """Runs forks and restores."""
        return Recovery(coordinator=self.coordinator)

    @property
    def promotion(self) -> Promotion:
        """Runs promotes."""
        return Promotion(coordinator=self.coordinator)

    def compact(self, found: Checkpoint, uid: str, handle: StateHandle, job: str = "") -> None:
        """Merges the segments of `handle`, a prefix of a checkpoint's state, into `base` for a later plan to adopt."""
        plan, schema = found.plan, found.plan.schemas[uid]
        rows = compact_rows(schema, state_rows(self.tables, schema, handle), found.now, deepest=True)
        job, table = job or self.ids(), f"{plan.tables[uid]}/base"
        run = self.tables.write(f"{table}/{job}", rows)
        parent = handle.segment_of(table)
        request = CommitRequest(
            table=table,
            parent=parent,
            files=run.files,
            rows=run.rows,
            level=1,
            checkpoint=handle.through,
            after=handle.after,
            schema=(),
            write_id=job,
            metadata={},
            app=("compaction", 1),
            drop=tuple(f.path for f in self.tables.live_files(parent)) if parent else (),
        )
        done = self.tables.commit(request, Unfenced())
        record = CompactionRecord(
            uid=uid,
            job=job,
            checkpoint=found.id,
            timeline=plan.slot.timeline,
            input=handle,
            output=StateHandle((done.segment,)),
            commits=(done.commit,),
            write_id=self.ids(),
            revision=found.revision,
        )
        self.coordinator.objects.put(compaction_key(uid, job), record)

    def compact_rows(self, policy: RowPolicy | None = None, timeline: str | None = None) -> list[CompactionRecord]:
        """Compacts the sinks and dead letters of the newest checkpoint that are due, for the next plan to adopt."""
        newest = next(self.coordinator.checkpoints(timeline))
        made = [self.row_compactor().compact(newest, table, policy or RowPolicy()) for table in row_tables(newest)]
        return [record for record in made if record is not None]

    def row_compactor(self, listener: StepListener = ignore_step) -> RowCompactor:
        """The product's compactor over these parts."""
        coordinator = self.coordinator

        def put_job(key: str, record: JobRecord) -> PutOutcome:
            outcome = coordinator.objects.put(key, record)
            refuse_doomed(coordinator, record.checkpoint)
            return outcome

        return RowCompactor(
            tables=self.tables,
            files=MemoryRowFiles(self.tables),
            clock=self.clock,
            write_ids=self.ids,
            listener=listener,
            put_job=put_job,
            put_record=coordinator.objects.put,
        )

    def executed(self, pipeline: Pipeline, attempt: OwnedAttempt) -> Sealed:
        """Executes an attempt up to its seal, in the product's sequence of steps."""
        return self.checkpoint_job(self.compute_of(pipeline)).execute(attempt)

    def compute_of(self, pipeline: Pipeline) -> MemoryCompute:
        """The twin of the engine, which blocks the keys that were erased forever."""
        blocked = Erasures(self.coordinator.objects).blocked_keys
        return MemoryCompute(pipeline=pipeline, log=self.log, tables=self.tables, blocked=blocked)

    def checkpoint_job(self, compute: Any, listener: StepListener = ignore_step, **options: Any) -> CheckpointJob:
        """The product's sequence of steps over these parts; `options` are further arguments of the job."""
        return CheckpointJob(
            compute=compute,
            tables=self.tables,
            clock=self.clock,
            write_ids=self.ids,
            listener=listener,
            **{"max_dead_letters": compute.pipeline.max_dead_letters, **options},
        )
