"""The order of a checkpoint's steps. This is the only module that knows it.

read → per operator: fold or process, write the run, commit it, then its dead letters and its emitted rows → gate →
fsync → send, if attempts send to a sink themselves → seal. The attempt's outcome is read again before every step; a
commit reads it once more, after it has read the table version. Planning, taking the attempt and publishing belong to
the coordinator. This module uses ports alone, so the in-memory twin runs the same order.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from tidemark.coordinator.checkpoints.outputs import dead_letters, emitted, send
from tidemark.coordinator.checkpoints.steps import Steps, Target, extended
from tidemark.errors import DeadLettersExceededError, GateFailedError, TidemarkError
from tidemark.model.checkpoint.manifest import Ack, Commit, PendingCheckpoint, Sealed, Verdict
from tidemark.model.checkpoint.operator_lists import OperatorState
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.ports import (
    Attempt,
    Batch,
    Clock,
    Compute,
    Sender,
    StateTables,
    StepListener,
    UidCounts,
    WriteIds,
    WrittenRun,
)
from tidemark.sql.resolve import run_columns


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
            rejected = batch.rejected()
            verdict = steps.take("gate", lambda: batch.judge(_paths(steps, runs)))
            refuse_failed(plan, verdict)
            batch.refuse_recreated()
            _make_durable(steps, pending)
            send(steps, batch, self.sender, self.skipped)
        except BaseException as error:
            _close_after(error, batch)
            raise
        batch.close()
        sealed = pending.sealed(attempt=attempt.number, facts=batch.facts, verdict=verdict, timings_ms=steps.timings_ms)
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
        if counts.applied:
            run = steps.take(f"fold.{uid}", lambda: batch.write_run(uid, steps.folder(table)))
        written = self.clock.now_ms()
        if run.rows:
            target = Target(uid=uid, table=table, handle=handle, schema=run_columns(plan.schemas[uid]))
            done = steps.commit(f"runs.{uid}", target, run)
            handle, commits = extended(handle, done), (done.commit,)
        letters, more = dead_letters(steps, batch, uid)
        sink, last = emitted(steps, batch, uid)
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
            emitted=counts.emitted,
            sink=sink,
            operator_state=counts.operator_state or plan.operator_states.get(uid, OperatorState()),
        )
        return ack, run

    def _prepare(self, steps: Steps, batch: Batch, uid: str) -> UidCounts:
        """Runs a process operator's function, so that its counts are known."""
        plan = steps.attempt.plan
        if plan.schemas[uid].kind == "process":
            counts = steps.take(f"process.{uid}", lambda: batch.prepare(uid))
        else:
            counts = batch.prepare(uid)
        self._refuse_excess(plan, uid, counts)
        return counts

    def _refuse_excess(self, plan: CheckpointPlan, uid: str, counts: UidCounts) -> None:
        if counts.read and counts.dead_lettered / counts.read > self.max_dead_letters:
            raise DeadLettersExceededError(
                f"too many dead letters: {uid}: {counts.dead_lettered} of {counts.read} records"
                f" ({counts.dead_lettered / counts.read:.1%}) were not applied,"
                f" allowed are {self.max_dead_letters:.1%}",
                safe=f"every completed checkpoint of {plan.pipeline} is intact; {plan.name} was not published.",
                next="look at the records, fix the producer or the record type, or raise max_dead_letters.",
            )


def _make_durable(steps: Steps, pending: PendingCheckpoint) -> None:
    commits = [commit for ack in pending.acks for commit in ack.commits]
    folders = [steps.folder(commit.path) for commit in commits]
    steps.take("fsync", lambda: steps.tables.make_durable(commits, folders))


def _seal(steps: Steps, sealed: Sealed) -> Sealed:
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
