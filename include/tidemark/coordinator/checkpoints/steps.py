"""The steps of an attempt. Each step checks the fence, calls the step listener before and after, and is timed."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from tidemark.model.checkpoint.segments import StateHandle
from tidemark.ports import Attempt, Clock, CommitRequest, Committed, StateTables, StepListener, WriteIds, WrittenRun

T = TypeVar("T")


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

    def take(self, name: str, act: Callable[[], T]) -> T:
        """Takes a step.

        Raises:
            FencedError: the attempt was revoked.
        """
        self.attempt.check()
        self.listener(name, "before")
        started = self.clock.now_ms()
        done = act()
        self.timings_ms[name] = self.clock.now_ms() - started
        self.listener(name, "after")
        return done

    def commit(self, step: str, target: Target, run: WrittenRun) -> Committed:
        """Commits a written run as one step; the fence is checked again inside the commit, see `CommitGap`.

        Args:
            step: `runs.<uid>`, `sinks.<uid>` (dead letters) or `outputs.<uid>`.
            target: the table to commit to.
            run: the written files.
        """
        gap = CommitGap(attempt=self.attempt, listener=self.listener, step=f"commit.{step}")
        return self.take(step, lambda: self.tables.commit(self._request(target, run), gap))

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


def extended(handle: StateHandle, done: Committed) -> StateHandle:
    """The handle after a commit: the new segment replaces the one of the same table."""
    older = tuple(s for s in handle.segments if s.path != done.segment.path)
    return StateHandle((*older, done.segment))
