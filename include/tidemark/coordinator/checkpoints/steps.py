"""One step of an attempt: checks the fence, calls the step listener before and after, and takes the time."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from tidemark.model.checkpoint.segments import StateHandle
from tidemark.ports import Attempt, Clock, CommitRequest, Committed, StateTables, StepListener, WriteIds, WrittenRun

T = TypeVar("T")


def ignore_step(step: str, moment: str) -> None:
    """The step listener of normal operation: does nothing."""


def both_listeners(first: StepListener, second: StepListener) -> StepListener:
    """Calls two listeners at every step, the first one first.

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
    """The table that an operator's rows go to, and what the parent left there.

    Attributes:
        uid: the operator.
        table: relative to the warehouse.
        handle: what the parent left.
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
        attempt: whose steps they are.
        tables: commits.
        clock: of the timings.
        write_ids: of the commits.
        listener: called before and after every step.
        timings_ms: per step, filled by `take`.
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
        """Commits what was written, as a step with those of the fence inside; see `CommitGap`.

        Args:
            step: `runs.<uid>`, `sinks.<uid>` (dead letters) or `outputs.<uid>`.
            target: where to.
            run: what was written.
        """
        gap = CommitGap(attempt=self.attempt, listener=self.listener, step=f"commit.{step}")
        return self.take(step, lambda: self.tables.commit(self._request(target, run), gap))

    def folder(self, table: str) -> str:
        """The attempt's own folder in a table."""
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
    """The attempt's fence inside a commit, as a step of its own (port `Fence`).

    A commit asks it once it has read the table's version. So `before` lies behind the version and ahead of the fence,
    and `after` lies behind the fence and ahead of the commit: whoever sleeps there wakes with everything checked, and
    only the compare-and-set on the version stops it.

    Attributes:
        attempt: whose fence it is.
        listener: called at the two points.
        step: `commit.runs.<uid>`, `commit.sinks.<uid>` (dead letters) or `commit.outputs.<uid>`.
    """

    attempt: Attempt
    listener: StepListener
    step: str

    def check(self) -> None:
        """Reads the attempt's outcome key.

        Raises:
            FencedError: it was revoked.
        """
        self.listener(self.step, "before")
        self.attempt.check()
        self.listener(self.step, "after")


def extended(handle: StateHandle, done: Committed) -> StateHandle:
    """A handle with the segment that a commit left behind in place of the one of the same table."""
    older = tuple(s for s in handle.segments if s.path != done.segment.path)
    return StateHandle((*older, done.segment))
