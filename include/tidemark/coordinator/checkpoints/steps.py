"""One step of an attempt: the fence is asked, tests may kill the process before and after, and the time is taken."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from tidemark.model.segments import StateHandle
from tidemark.ports import Attempt, Clock, CommitRequest, Committed, CrashPoints, StateTables, WriteIds, WrittenRun

T = TypeVar("T")


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
        crash: told of every step.
        timings_ms: per step, filled by `take`.
    """

    attempt: Attempt
    tables: StateTables
    clock: Clock
    write_ids: WriteIds
    crash: CrashPoints
    timings_ms: dict[str, int] = field(default_factory=dict)

    def take(self, name: str, act: Callable[[], T]) -> T:
        """Takes a step.

        Raises:
            FencedError: the attempt was revoked.
        """
        self.attempt.check()
        self.crash(name, "before")
        started = self.clock.now_ms()
        done = act()
        self.timings_ms[name] = self.clock.now_ms() - started
        self.crash(name, "after")
        return done

    def commit(self, step: str, target: Target, run: WrittenRun) -> Committed:
        """Commits what was written, as a step with the crash points of a commit inside.

        Args:
            step: `runs.<uid>`, `sinks.<uid>` (dead letters) or `outputs.<uid>`.
            target: where to.
            run: what was written.
        """
        gap = CommitGap(attempt=self.attempt, crash=self.crash, step=f"commit.{step}")
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


def extended(handle: StateHandle, done: Committed) -> StateHandle:
    """A handle with the segment that a commit left behind in place of the one of the same table."""
    older = tuple(s for s in handle.segments if s.path != done.segment.path)
    return StateHandle((*older, done.segment))
