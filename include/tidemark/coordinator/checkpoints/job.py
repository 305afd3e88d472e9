"""The order of a checkpoint's steps. This is the only module that knows it.

read → per operator: fold or process, write the run, commit it, then its dead letters and its emitted rows → gate →
fsync → send, if attempts send to a sink themselves → seal. The attempt's outcome is read again with every step: before
it, or while it runs if the store is far away (adr/0071). A commit reads it after it has read the table version.
Planning, taking the attempt and publishing belong to the coordinator. This module uses ports alone, so the in-memory
twin runs the same order.
"""

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from tidemark.errors import DeadLettersExceededError, GateFailedError, StoreError, TidemarkError
from tidemark.model.checkpoint.commits import Commit
from tidemark.model.checkpoint.dead_letters import DEAD_LETTER_COLUMNS
from tidemark.model.checkpoint.emitted import EmittedRecords
from tidemark.model.checkpoint.manifest import Ack, OutputAck, PendingCheckpoint, Sealed, Verdict
from tidemark.model.checkpoint.messages import commit_id, emitted_rows
from tidemark.model.checkpoint.plan import CheckpointPlan, dead_letters_path
from tidemark.model.checkpoint.segments import OperatorState, StateHandle
from tidemark.model.schema.operator_schema import run_columns
from tidemark.ports import (
    Attempt,
    Batch,
    Clock,
    CommitRequest,
    Committed,
    Compute,
    Sender,
    StartedCheck,
    StateTables,
    StepListener,
    UidCounts,
    WriteIds,
    WrittenRun,
)
from tidemark.sinks.known_sinks import stored_sink
from tidemark.sinks.sink import Services

T = TypeVar("T")


# The steps of an attempt. Each step calls the step listener before and after, and is timed.
#
# A look at the fence is under way while a step runs, and is awaited before anything is written that others could read,
# so that a revoked attempt soon ends. That is all it is for: what a revoked attempt must not do is refused where it is
# done. A commit has a look of its own between the table version and the put, the seal is put under the key that a
# revocation takes, and a step that sends looks first (adr/0071).
def ignore_step(step: str, moment: str) -> None:
    """The step listener of normal operation; does nothing."""


def both_listeners(first: StepListener, second: StepListener) -> StepListener:
    """Combines two listeners: at every step, the first is called first.

    Example:
        >>> seen = []
        >>> both_listeners(ignore_step, lambda *step: seen.append(step))("plan", "before")
        >>> seen
        [('plan', 'before')]
    """

    def call(step: str, moment: str) -> None:
        first(step, moment)
        second(step, moment)

    return call


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The table to which an operator's rows are committed, and its handle in the parent checkpoint.

    Attributes:
        uid: uid of the operator.
        table: path of the table, relative to the warehouse.
        handle: the parent's handle of the table.
        schema: (column, SQL type) in order, without partition columns.
    """

    uid: str
    table: str
    handle: StateHandle
    schema: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Takes the steps of one attempt.

    Attributes:
        attempt: the attempt that takes the steps.
        tables: commits to tables.
        clock: times the steps.
        write_ids: ids for the commits.
        listener: called before and after every step.
        timings_ms: duration of each step, filled by `take`.
    """

    attempt: Attempt
    tables: StateTables
    clock: Clock
    write_ids: WriteIds
    listener: StepListener
    timings_ms: dict[str, int] = field(default_factory=dict)
    _looks: list[StartedCheck] = field(default_factory=list)

    def take(self, name: str, act: Callable[[], T]) -> T:
        """Takes a step that others do not see: it reads, or writes to the attempt's own folder.

        The fence is looked at while the step runs, unless an earlier look is still under way.

        Raises:
            FencedError: the attempt was revoked.
        """
        self._settle(only_answered=True)
        if not self._looks:
            self._looks.append(self.attempt.start_check())
            self._settle(only_answered=True)
        try:
            return self._timed(name, act)
        except Exception:
            # If a later attempt has taken away what the step works with, the cause is the fence.
            with suppress(StoreError):
                self.settle()
            raise

    def take_visibly(self, name: str, act: Callable[[], T]) -> T:
        """Takes a step that others see, or that cannot be taken back: the fence is looked at first.

        Raises:
            FencedError: the attempt was revoked.
        """
        self.settle()
        self.attempt.check()
        return self._timed(name, act)

    def settle(self) -> None:
        """Awaits the look that is under way.

        Raises:
            FencedError: the attempt was revoked.
        """
        self._settle(only_answered=False)

    def _settle(self, *, only_answered: bool) -> None:
        if self._looks and (self._looks[0].is_answered() or not only_answered):
            self._looks.pop().settle()

    def _timed(self, name: str, act: Callable[[], T]) -> T:
        self.listener(name, "before")
        started = self.clock.now_ms()
        done = act()
        self.timings_ms[name] = self.clock.now_ms() - started
        self.listener(name, "after")
        return done

    def commit(self, step: str, target: Target, run: WrittenRun) -> Committed:
        """Commits a written run as one step; the fence is checked inside the commit, see `CommitGap`.

        Args:
            step: `runs.<uid>`, `sinks.<uid>` (dead letters) or `outputs.<uid>`.
            target: the table to commit to.
            run: the written files.
        """
        self.settle()
        gap = CommitGap(attempt=self.attempt, listener=self.listener, step=f"commit.{step}")
        return self._timed(step, lambda: self.tables.commit(self._request(target, run), gap))

    def folder(self, table: str) -> str:
        """Path of the attempt's own folder in a table."""
        return f"{table}/{self.attempt.plan.id}.{self.attempt.number}"

    def _request(self, target: Target, run: WrittenRun) -> CommitRequest:
        plan, number = self.attempt.plan, self.attempt.number
        parent = target.handle.segment_of(target.table)
        return CommitRequest(
            table=target.table,
            parent=parent,
            files=run.files,
            rows=run.rows,
            level=0,
            checkpoint=plan.id,
            after=parent.after if parent else target.handle.through,
            schema=target.schema,
            write_id=self.write_ids(),
            metadata={
                "tidemark_pipeline": plan.pipeline,
                "tidemark_timeline": plan.slot.timeline,
                "tidemark_checkpoint": plan.name,
                "tidemark_attempt": str(number),
                "tidemark_uid": target.uid,
            },
            app=(f"{plan.pipeline}/{plan.slot.timeline}/{target.uid}", plan.id * 2**20 + number),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitGap:
    """The attempt's fence inside a commit, which is a step of its own (port `Fence`).

    A commit checks the fence after it has read the table's version. So `before` lies between reading the version and
    the fence, and `after` lies between the fence and the commit: a process that sleeps at `after` wakes up with every
    check passed, and only the compare-and-set on the version stops it.

    Attributes:
        attempt: the attempt whose fence is checked.
        listener: called at the two points.
        step: `commit.runs.<uid>`, `commit.sinks.<uid>` (dead letters) or `commit.outputs.<uid>`.
    """

    attempt: Attempt
    listener: StepListener
    step: str

    def check(self) -> None:
        """Reads the attempt's outcome key.

        Raises:
            FencedError: the attempt was revoked.
        """
        self.listener(self.step, "before")
        self.attempt.check()
        self.listener(self.step, "after")


def extend_handle(handle: StateHandle, done: Committed) -> StateHandle:
    """The handle after a commit: the new segment replaces the one of the same table."""
    older = (s for s in handle if s.path != done.segment.path)
    return handle.with_segments((*older, done.segment))


# The outputs of an operator other than its state: dead letters, and the rows that a process emits to a sink.
def dead_letters(steps: Steps, batch: Batch, uid: str) -> tuple[StateHandle, tuple[Commit, ...]]:
    """Writes and commits an operator's dead letters: steps `dead_letters.<uid>` and `sinks.<uid>`.

    Returns:
        The handle of the operator's dead-letter table afterwards, and the commits that were made.
    """
    plan = steps.attempt.plan
    parent = plan.dead_letters[uid]
    if not batch.counts[uid].dead_lettered:
        return parent, ()
    table = dead_letters_table(plan, uid)
    run = steps.take(f"dead_letters.{uid}", lambda: batch.write_dead_letters(uid, steps.folder(table)))
    done = steps.commit(f"sinks.{uid}", Target(uid=uid, table=table, handle=parent, schema=DEAD_LETTER_COLUMNS), run)
    return extend_handle(parent, done), (done.commit,)


def write_outputs(steps: Steps, batch: Batch, uid: str) -> tuple[dict[str, OutputAck], tuple[Commit, ...]]:
    """Writes and commits the rows for the sinks of an operator, output by output.

    Returns:
        Per uid of an output that has a sink, or emitted anything, its report; and the commits that were made.
    """
    emitted, sinks = batch.counts[uid].emitted, steps.attempt.plan.sinks_of(uid)
    acks, commits = dict[str, OutputAck](), tuple[Commit, ...]()
    for output in dict.fromkeys([*emitted, *sinks]):
        handle, made = _write_emitted(steps, batch, output, emitted.get(output, 0))
        commits += made
        if output in sinks or emitted.get(output):
            acks[output] = OutputAck(emitted=emitted.get(output, 0), sink=handle)
    return acks, commits


def _write_emitted(steps: Steps, batch: Batch, uid: str, emitted: int) -> tuple[StateHandle, tuple[Commit, ...]]:
    """Writes and commits the rows for the table of an output's sink: steps `emitted.<uid>` and `outputs.<uid>`.

    Rows emitted to another operator are not written; that operator gets them from the batch.

    Returns:
        The handle of the sink's table afterwards, and the commits that were made.
    """
    table = steps.attempt.plan.sinks.get(uid)
    if table is None or not table.keeps_rows or not emitted:
        return (StateHandle() if table is None else table.handle), ()
    run = steps.take(f"emitted.{uid}", lambda: batch.write_emitted(uid, steps.folder(table.path)))
    if not run.rows:
        return table.handle, ()  # a restored timeline emits only rows that the sink has
    target = Target(uid=uid, table=table.path, handle=table.handle, schema=table.stored)
    done = steps.commit(f"outputs.{uid}", target, run)
    return extend_handle(table.handle, done), (done.commit,)


def send(steps: Steps, batch: Batch, sender: Sender | None, skipped: Callable[[str], Collection[str]]) -> None:
    """Writes to sinks that keep no rows, per operator in the batch's order: steps `sent.<uid>`.

    Called after every other step of the attempt, because sent records cannot be taken back.

    Args:
        steps: steps of the attempt.
        batch: the batch with the emitted rows.
        sender: connection to Kafka.
        skipped: returns, per sink, the ids of the records to leave out.

    Raises:
        FencedError: the attempt was revoked.
        RecordRefusedError: Kafka refused a record.
        BrokerError: Kafka did not acknowledge every record.
        UsageError: a sink sends to Kafka, but there is no sender.
    """
    plan, services = steps.attempt.plan, Services(kafka=sender)
    outputs = [(output, table, uid) for uid in batch.uids for output, table in plan.sinks_of(uid).items()]
    for output, table, uid in outputs:
        sink = stored_sink(table)
        if sink is None or table.keeps_rows or not batch.counts[uid].emitted.get(output):
            continue
        lacks = EmittedRecords.of(plan, output).lacks(table.coverage(plan.topic_ids))
        left = emitted_rows(plan, table, filter(lacks, batch.read_emitted(output)), skipped(table.name))
        steps.take_visibly(f"sent.{output}", partial(sink.write, left, commit_id(plan), services))


def dead_letters_table(plan: CheckpointPlan, uid: str) -> str:
    """Path of an operator's dead-letter table, relative to the warehouse."""
    return dead_letters_path(plan.pipeline, uid, plan.slot.timeline)


def skip_nothing(sink: str) -> Collection[str]:
    """Leaves no record of a sink out."""
    return ()


@dataclass(frozen=True)
class CheckpointJob:
    """Executes attempts of plans, up to and including the seal.

    `skipped` returns the ids of the records that a sink leaves out, for sinks that attempts send to; see
    `coordinator.records.refusal_records`.
    """

    compute: Compute
    tables: StateTables
    clock: Clock
    write_ids: WriteIds
    listener: StepListener
    max_dead_letters: float
    sender: Sender | None = None
    skipped: Callable[[str], Collection[str]] = skip_nothing

    def execute(self, attempt: Attempt) -> Sealed:
        """Runs the steps in order.

        Raises:
            FencedError: the attempt was revoked on the way; its files belong to no state.
            GateFailedError: the gate rejected the candidate, or could not judge it; `verdict` says why.
            DeadLettersExceededError: the share of records that could not be applied is too large.
            DataLostError, StateOverflowError, BrokerError, EngineError, StoreError: as the steps raise them.
        """
        plan, pending, steps = attempt.plan, PendingCheckpoint(attempt.plan), self._steps(attempt)
        folders = {uid: steps.folder(runs_table(plan, uid)) for uid in plan.tables}
        batch = steps.take("read", lambda: self.compute.read(plan, folders))
        try:
            for uid, counts in batch.counts.items():
                self._refuse_excess(plan, uid, counts)
            runs: dict[str, WrittenRun] = {}
            for uid in batch.uids:
                ack, runs[uid] = self._operator(steps, batch, uid)
                pending.acknowledge(ack)
            rejected = batch.count_rejected()
            verdict = steps.take("gate", lambda: batch.judge(_paths(steps, runs)))
            refuse_failed(plan, verdict)
            batch.refuse_recreated()
            _make_durable(steps, pending)
            send(steps, batch, self.sender, self.skipped)
        except BaseException as error:
            _close_after(error, batch)
            raise
        batch.close()
        # In the order in which the store returns them: who sealed the plan itself does not read it again.
        timings = dict(sorted(steps.timings_ms.items()))
        sealed = pending.seal(attempt=attempt.number, facts=batch.facts, verdict=verdict, timings_ms=timings)
        return _seal(steps, replace(sealed, rejected=rejected, sealed_at_ms=self.clock.now_ms()))

    def _steps(self, attempt: Attempt) -> Steps:
        return Steps(
            attempt=attempt, tables=self.tables, clock=self.clock, write_ids=self.write_ids, listener=self.listener
        )

    def _operator(self, steps: Steps, batch: Batch, uid: str) -> tuple[Ack, WrittenRun]:
        plan, started = steps.attempt.plan, self.clock.now_ms()
        counts = self._prepare(steps, batch, uid)
        run, handle = WrittenRun(rows=0, files=()), plan.handles[uid]
        commits: tuple[Commit, ...] = ()
        table = runs_table(plan, uid)
        if (counts.applied or counts.fired) and plan.schemas[uid].keeps_state:
            run = steps.take(f"fold.{uid}", lambda: batch.write_run(uid, steps.folder(table)))
        written = self.clock.now_ms()
        if run.rows:
            target = Target(uid=uid, table=table, handle=handle, schema=run_columns(plan.schemas[uid]))
            done = steps.commit(f"runs.{uid}", target, run)
            handle, commits = extend_handle(handle, done), (done.commit,)
        letters, more = dead_letters(steps, batch, uid)
        outputs, last = write_outputs(steps, batch, uid)
        first = outputs.pop(uid, OutputAck())
        ack = Ack(
            uid=uid,
            handle=handle,
            dead_letters=letters,
            commits=commits + more + last,
            read=counts.read,
            applied=counts.applied,
            dead_lettered=counts.dead_lettered,
            keys=run.rows,
            run_bytes=run.bytes,
            timings_ms={"fold": written - started, "commit": self.clock.now_ms() - written},
            emitted=first.emitted,
            sink=first.sink,
            operator_state=counts.operator_state or plan.operator_states.get(uid, OperatorState()),
            redriven=counts.redriven,
            refused_again=counts.refused_records,
            outputs=outputs,
            filtered=counts.filtered,
            late=counts.late,
            fired=counts.fired,
        )
        return ack, run

    def _prepare(self, steps: Steps, batch: Batch, uid: str) -> UidCounts:
        """Runs an operator's function, if it has one, so that its counts are known."""
        plan = steps.attempt.plan
        if plan.schemas[uid].emits:
            counts = steps.take(f"process.{uid}", lambda: batch.prepare(uid))
        else:
            counts = batch.prepare(uid)
        self._refuse_excess(plan, uid, counts)
        return counts

    def _refuse_excess(self, plan: CheckpointPlan, uid: str, counts: UidCounts) -> None:
        # A redriven record that is refused again was counted by the checkpoint that first refused it. Filtered records
        # count as read: a broken producer must not stop a pipeline that looks at few of its records.
        # Late ones do not count either: a partition that wakes up would stop the pipeline.
        late = 0 if plan.schemas[uid].keeps_late else counts.late
        refused = counts.dead_lettered - counts.refused_again - late
        if counts.read and refused / counts.read > self.max_dead_letters:
            raise DeadLettersExceededError(
                f"too many dead letters: {uid}: {refused} of {counts.read} records"
                f" ({refused / counts.read:.1%}) were not applied,"
                f" allowed are {self.max_dead_letters:.1%}",
                safe=f"every completed checkpoint of {plan.pipeline} is intact; {plan.name} was not published.",
                next="look at the records, fix the producer or the record type, or raise max_dead_letters.",
            )


def _make_durable(steps: Steps, pending: PendingCheckpoint) -> None:
    commits = [commit for ack in pending.acks for commit in ack.commits]
    folders = [steps.folder(commit.path) for commit in commits]
    steps.take("fsync", lambda: steps.tables.make_durable(commits, folders))


def _seal(steps: Steps, sealed: Sealed) -> Sealed:
    steps.settle()
    steps.listener("seal", "before")
    steps.attempt.seal(sealed)
    steps.listener("seal", "after")
    return sealed


def _close_after(error: BaseException, batch: Batch) -> None:
    # Report the first error: after a crash of the server, releasing the batch fails as well.
    try:
        batch.close()
    except TidemarkError as second:
        error.add_note(f"then the batch could not be released: {second.what}")


def refuse_failed(plan: CheckpointPlan, verdict: Verdict) -> None:
    """Raises if a verdict is not a pass.

    Raises:
        GateFailedError: the message lists the failed expectations; `verdict` is attached to the error.
    """
    if verdict.passed:
        return
    failed = [f"{e.frame}: {e.type}: {e.detail}" for e in verdict.expectations if not e.success]
    what = f"gate could not judge: {verdict.error}" if verdict.error else f"gate failed: {'; '.join(failed)}"
    raise GateFailedError(
        what,
        safe=f"every completed checkpoint of {plan.pipeline} is intact; {plan.name} was not published.",
        next="fix the data or the gate, then run the pipeline again: it plans the same offsets again.",
    ).with_verdict(verdict)


def runs_table(plan: CheckpointPlan, uid: str) -> str:
    """Path of an operator's `runs` table, relative to the warehouse."""
    return f"{plan.tables[uid]}/runs"


def _paths(steps: Steps, runs: Mapping[str, WrittenRun]) -> dict[str, list[str]]:
    return {uid: [f"{runs_table(steps.attempt.plan, uid)}/{f.path}" for f in run.files] for uid, run in runs.items()}
