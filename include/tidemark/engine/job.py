"""The order of a checkpoint's steps: the only module that knows it (reliability.md section 3, steps 3 to 7).

read → per operator: fold or process, write the run, commit it, then its dead letters and what it emits → gate → fsync
→ seal. The outcome of the attempt is read again before every step; a commit reads it once more, after it has read the
table version. Planning, taking the attempt and publishing belong to the coordinator. It works on ports alone, so the
in-memory twin runs the same order.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from tidemark.errors import DeadLettersExceededError, GateFailedError, TidemarkError
from tidemark.model.checkpoint import Ack, Commit, PendingCheckpoint, Sealed, Verdict
from tidemark.model.plan import CheckpointPlan
from tidemark.model.resolving import run_columns
from tidemark.model.segments import StateHandle
from tidemark.ports import (
    Attempt,
    Batch,
    Clock,
    CommitRequest,
    Committed,
    Compute,
    CrashPoints,
    StateTables,
    UidCounts,
    WriteIds,
    WrittenRun,
)

T = TypeVar("T")

DEAD_LETTER_COLUMNS: tuple[tuple[str, str], ...] = (
    ("topic", "STRING"),
    ("partition", "INT"),
    ("offset", "BIGINT"),
    ("timestamp", "TIMESTAMP"),
    ("uid", "STRING"),
    ("reason", "STRING"),
    ("key", "BINARY"),
    ("value", "BINARY"),
)
"""Columns of a dead-letter table, before its partition columns."""


@dataclass
class CheckpointJob:
    """Executes one attempt of one plan, up to and including the seal."""

    compute: Compute
    tables: StateTables
    clock: Clock
    write_ids: WriteIds
    crash: CrashPoints
    max_dead_letters: float
    _timings: dict[str, int] = field(default_factory=dict)

    def execute(self, attempt: Attempt) -> Sealed:
        """Runs the steps in order.

        Raises:
            FencedError: the attempt was revoked on the way; what it wrote is no part of any state.
            GateFailedError: the candidate was rejected, or could not be judged; `verdict` says why.
            DeadLettersExceededError: too large a share of the records could not be applied.
            DataLostError, StateOverflowError, BrokerError, EngineError, StoreError: as the steps raise them.
        """
        plan, pending = attempt.plan, PendingCheckpoint(attempt.plan)
        batch = self._step("read", attempt, lambda: self.compute.read(plan))
        try:
            for uid, counts in batch.counts.items():
                self._refuse_excess(plan, uid, counts)
            runs: dict[str, WrittenRun] = {}
            for uid in batch.uids:
                ack, runs[uid] = self._operator(attempt, batch, uid)
                pending.acknowledge(ack)
            verdict = self._step("gate", attempt, lambda: batch.judge(_paths(attempt, runs)))
            refuse_failed(plan, verdict)
        except BaseException as error:
            _close_after(error, batch)
            raise
        batch.close()
        return self._seal(attempt, pending, batch, verdict)

    def _operator(self, attempt: Attempt, batch: Batch, uid: str) -> tuple[Ack, WrittenRun]:
        plan, started = attempt.plan, self.clock.now_ms()
        counts = self._prepared(attempt, batch, uid)
        run, handle = WrittenRun(rows=0, files=()), plan.handles[uid]
        commits: tuple[Commit, ...] = ()
        if counts.applied:
            folder = _folder(attempt, runs_table(plan, uid))
            run = self._step(f"fold.{uid}", attempt, lambda: batch.write_run(uid, folder))
        written = self.clock.now_ms()
        if run.rows:
            done = self._step(f"runs.{uid}", attempt, lambda: self._commit(attempt, uid, run))
            handle, commits = _extended(handle, done), (done.commit,)
        letters, more = self._dead_letters(attempt, batch, uid)
        sink, last = self._emitted(attempt, batch, uid)
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
        )
        return ack, run

    def _prepared(self, attempt: Attempt, batch: Batch, uid: str) -> UidCounts:
        """Runs the function of a process, so that its counts are known."""
        if attempt.plan.schemas[uid].kind == "process":
            counts = self._step(f"process.{uid}", attempt, lambda: batch.prepare(uid))
        else:
            counts = batch.prepare(uid)
        self._refuse_excess(attempt.plan, uid, counts)
        return counts

    def _commit(self, attempt: Attempt, uid: str, run: WrittenRun) -> Committed:
        plan = attempt.plan
        target = _Target(uid, runs_table(plan, uid), plan.handles[uid], run_columns(plan.schemas[uid]))
        return self.tables.commit(_request(attempt, target, run, self.write_ids()), self._gap(attempt, f"runs.{uid}"))

    def _gap(self, attempt: Attempt, step: str) -> "CommitGap":
        return CommitGap(attempt=attempt, crash=self.crash, step=f"commit.{step}")

    def _dead_letters(self, attempt: Attempt, batch: Batch, uid: str) -> tuple[StateHandle, tuple[Commit, ...]]:
        plan, parent = attempt.plan, attempt.plan.dead_letters[uid]
        if not batch.counts[uid].dead_lettered:
            return parent, ()
        table = dead_letters_table(plan, uid)
        run = self._step(f"dead_letters.{uid}", attempt, lambda: batch.write_dead_letters(uid, _folder(attempt, table)))
        request = _request(attempt, _Target(uid, table, parent, DEAD_LETTER_COLUMNS), run, self.write_ids())
        gap = self._gap(attempt, f"sinks.{uid}")
        done = self._step(f"sinks.{uid}", attempt, lambda: self.tables.commit(request, gap))
        return _extended(parent, done), (done.commit,)

    def _emitted(self, attempt: Attempt, batch: Batch, uid: str) -> tuple[StateHandle, tuple[Commit, ...]]:
        """Writes and commits what goes to the operator's sink (J1); another operator gets it from the batch."""
        table = attempt.plan.sinks.get(uid)
        if table is None or not batch.counts[uid].emitted:
            return (StateHandle() if table is None else table.handle), ()
        folder = _folder(attempt, table.path)
        run = self._step(f"emitted.{uid}", attempt, lambda: batch.write_emitted(uid, folder))
        request = _request(attempt, _Target(uid, table.path, table.handle, table.stored), run, self.write_ids())
        gap = self._gap(attempt, f"outputs.{uid}")
        done = self._step(f"outputs.{uid}", attempt, lambda: self.tables.commit(request, gap))
        return _extended(table.handle, done), (done.commit,)

    def _seal(self, attempt: Attempt, pending: PendingCheckpoint, batch: Batch, verdict: Verdict) -> Sealed:
        sealed = pending.sealed(attempt=attempt.number, facts=batch.facts, verdict=verdict, timings_ms=self._timings)
        commits = [c for a in sealed.acks for c in a.commits]
        folders = [_folder(attempt, c.path) for c in commits]
        self._step("fsync", attempt, lambda: self.tables.make_durable(commits, folders))
        self.crash("seal", "before")
        attempt.seal(sealed)
        self.crash("seal", "after")
        return sealed

    def _refuse_excess(self, plan: CheckpointPlan, uid: str, counts: UidCounts) -> None:
        if counts.read and counts.dead_lettered / counts.read > self.max_dead_letters:
            raise DeadLettersExceededError(
                f"too many dead letters: {uid}: {counts.dead_lettered} of {counts.read} records"
                f" ({counts.dead_lettered / counts.read:.1%}) were not applied,"
                f" allowed are {self.max_dead_letters:.1%}",
                safe=f"every completed checkpoint of {plan.pipeline} is intact; {plan.name} was not published.",
                next="look at the records, mend the producer or the record type, or raise max_dead_letters.",
            )

    def _step(self, name: str, attempt: Attempt, act: Callable[[], T]) -> T:
        attempt.check()
        self.crash(name, "before")
        started = self.clock.now_ms()
        done = act()
        self._timings[name] = self.clock.now_ms() - started
        self.crash(name, "after")
        return done


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitGap:
    """The attempt's fence inside a commit, with crash points (port `Fence`).

    A commit asks it once it has read the table's version. So `before` lies behind the version and ahead of the fence,
    and `after` lies behind the fence and ahead of the commit: whoever sleeps there wakes with everything checked, and
    only the compare-and-set on the version stops it.

    Attributes:
        attempt: whose fence it is.
        crash: told of the two points.
        step: `commit.runs.<uid>`, `commit.sinks.<uid>` (dead letters) or `commit.outputs.<uid>`.
    """

    attempt: Attempt
    crash: CrashPoints
    step: str

    def check(self) -> None:
        """Reads the attempt's outcome key.

        Raises:
            FencedError: it was revoked.
        """
        self.crash(self.step, "before")
        self.attempt.check()
        self.crash(self.step, "after")


def _close_after(error: BaseException, batch: Batch) -> None:
    # What went wrong first is what is told: a server that is gone cannot release anything either.
    try:
        batch.close()
    except TidemarkError as second:
        error.add_note(f"then the batch could not be released: {second.what}")


def refuse_failed(plan: CheckpointPlan, verdict: Verdict) -> None:
    """Raises for a verdict that is no pass.

    Raises:
        GateFailedError: with the failed expectations in the message; `verdict` is attached to the error.
    """
    if verdict.passed:
        return
    failed = [f"{e.frame}: {e.type}: {e.detail}" for e in verdict.expectations if not e.success]
    what = f"gate could not judge: {verdict.error}" if verdict.error else f"gate failed: {'; '.join(failed)}"
    raise GateFailedError(
        what,
        safe=f"every completed checkpoint of {plan.pipeline} is intact; {plan.name} was not published.",
        next="mend the data or the gate, then run the pipeline again: it plans the same offsets anew.",
    ).with_verdict(verdict)


def runs_table(plan: CheckpointPlan, uid: str) -> str:
    """The `runs` table of an operator, relative to the warehouse."""
    return f"{plan.tables[uid]}/runs"


def dead_letters_table(plan: CheckpointPlan, uid: str) -> str:
    """The dead-letter table of an operator, relative to the warehouse."""
    return f"{plan.pipeline}/dead_letters/{uid}/{plan.slot.timeline}"


def _folder(attempt: Attempt, table: str) -> str:
    return f"{table}/{attempt.plan.id}.{attempt.number}"


def _paths(attempt: Attempt, runs: Mapping[str, WrittenRun]) -> dict[str, list[str]]:
    return {uid: [f"{runs_table(attempt.plan, uid)}/{f.path}" for f in run.files] for uid, run in runs.items()}


@dataclass(frozen=True, slots=True)
class _Target:
    """The table that an operator's rows go to, and what the parent left there."""

    uid: str
    table: str
    handle: StateHandle
    schema: tuple[tuple[str, str], ...]


def _request(attempt: Attempt, target: _Target, run: WrittenRun, write_id: str) -> CommitRequest:
    plan, handle, uid = attempt.plan, target.handle, target.uid
    parent = handle.segment_of(target.table)
    return CommitRequest(
        table=target.table,
        parent=parent,
        files=run.files,
        rows=run.rows,
        level=0,
        checkpoint=plan.id,
        after=parent.after if parent else handle.through,
        schema=target.schema,
        write_id=write_id,
        metadata={
            "tidemark_pipeline": plan.pipeline,
            "tidemark_timeline": plan.slot.timeline,
            "tidemark_checkpoint": plan.name,
            "tidemark_attempt": str(attempt.number),
            "tidemark_uid": uid,
        },
        app=(f"{plan.pipeline}/{plan.slot.timeline}/{uid}", plan.id * 2**20 + attempt.number),
    )


def _extended(handle: StateHandle, done: Committed) -> StateHandle:
    older = tuple(s for s in handle.segments if s.path != done.segment.path)
    return StateHandle((*older, done.segment))
