"""Backfill from a savepoint as one action: fork, repeat the recorded checkpoints with the current code, promote.

All progress is in the store: the fork is found by its name, its position by its newest checkpoint, and whether it is
over by the closings. So a repeated call continues where an earlier one died, in any process, and live checkpoints
continue in the meantime.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.checkpoints.failure_policy import FailureReport
from tidemark.coordinator.checkpoints.loop import CheckpointLoop, Execute, list_undelivered
from tidemark.coordinator.plans.replay_ranges import (
    RecordedStep,
    ReplayProgress,
    refuse_end,
    refuse_lost,
    remaining,
    steps,
    whole,
)
from tidemark.coordinator.plans.restore_point import RestorePoint
from tidemark.coordinator.records.states import Covered, OpenPlan, Promoted, Refused, SealedPlan, Superseded
from tidemark.coordinator.records.timelines import Head
from tidemark.coordinator.recovery.promotion import Promotion
from tidemark.coordinator.recovery.restore import Recovery
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.declare.pipeline import Pipeline
from tidemark.errors import ConflictError
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.checkpoint.store_objects import Closing, Genesis
from tidemark.model.core.names import checked_name
from tidemark.ports import PlanRequest

_LONGEST = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillRequest:
    """A backfill as the command line, the form of a DAG or a program requests it.

    Attributes:
        begins: the savepoint or checkpoint that the fork begins at.
        fork: name of the fork; empty = derived from the beginning and the code, so that other code begins another fork.
        to: id of the checkpoint to end with; None = the live head, wherever it is by then.
        max_records: offsets of one step, which may then cover several checkpoints; None = one each.
        origin: the DAG run id, or "cli".
        promotes: whether the fork may become live; refused at once if `to` is given.
        send: once the fork is live, send the rows that it emitted and the live timeline had not sent.
    """

    begins: RestoreRequest
    fork: str = ""
    to: int | None = None
    max_records: int | None = None
    origin: str = "cli"
    promotes: bool = False
    send: bool = False

    def __post_init__(self) -> None:
        if self.promotes:
            refuse_end(self.to)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """The progress of a backfill, and its remaining steps.

    Attributes:
        fork: name of its timeline.
        begins: id of the checkpoint that it begins at.
        to: id of the checkpoint that it repeats up to.
        done: checkpoints of the fork, oldest first.
        left: the remaining steps, in order.
        promoted: whether the fork is or was the live timeline; nothing is left then.
        exists: whether the fork was begun.
        unsent: per Kafka sink, the checkpoints that the fork replaces and whose rows were not delivered. Without
            `send`, these rows are never sent.
    """

    fork: str
    begins: int
    to: int
    done: tuple[Checkpoint, ...] = ()
    left: tuple[RecordedStep, ...] = ()
    promoted: bool = False
    exists: bool = False
    unsent: Mapping[str, tuple[Checkpoint, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A recorded checkpoint and the fork's repetition of it; `ancestor` is the id of their newest common ancestor."""

    recorded: Checkpoint
    repeated: Checkpoint
    ancestor: int


@dataclass(frozen=True, kw_only=True)
class Backfill:
    """One backfill of one pipeline.

    Attributes:
        coordinator: of the pipeline.
        pipeline: the current declaration.
        request: the request for the backfill.
        on_failure: called with every failure before its error is raised.
    """

    coordinator: CheckpointCoordinator
    pipeline: Pipeline
    request: BackfillRequest
    on_failure: Callable[[FailureReport], None] = field(default=lambda report: None)

    @cached_property
    def restore_point(self) -> RestorePoint:
        """The checkpoint that the request names, read once.

        Raises:
            NotFoundError, ReleasedError, ConflictError: as `RestoreRequest.find_restore_point`.
        """
        return self.request.begins.find_restore_point(self.coordinator)

    @property
    def fork(self) -> str:
        """Name of the fork.

        Raises:
            NameRefusedError: the name is not on the allow-list.
        """
        begins = self.restore_point.savepoint or self.restore_point.checkpoint.plan.name
        made = f"backfill-{begins[:_LONGEST]}-{self.pipeline.fingerprint[:8]}"
        return checked_name("timeline", self.request.fork or made)

    @property
    def promoted(self) -> bool:
        """Whether the fork is or was the live timeline."""
        return any(closing.successor == self.fork for closing in self.coordinator.timelines.closings())

    def outlook(self) -> Outlook:
        """Returns progress and remaining steps. Reads only; checks whether the backfill is possible before it begins.

        Raises:
            DataLostError: Kafka no longer has all of the records; the message lists the exact gaps.
            ConflictError: the checkpoint is no ancestor of the end, or the fork does not belong to this backfill.
            IncompatibleStateError: the declaration does not fit the state of the savepoint.
            NotFoundError, BrokerError, CorruptObjectError: as the functions below raise them.
        """
        begins, to = self.restore_point.checkpoint.id, self._target()
        head = self._head()
        done = () if head is None else self._done(head)
        if self.promoted:
            return Outlook(fork=self.fork, begins=begins, to=to, done=done, promoted=True, exists=True)
        # A draft of the fork: this checks the declaration and the files of the state.
        self._recovery.genesis(self.restore_point)
        place = ReplayProgress.at(self.restore_point.checkpoint, self.fork) if head is None else ReplayProgress.of(head)
        recorded = list(remaining(self.coordinator.timelines, place, to))
        refuse_lost(self.pipeline, whole(self.pipeline, recorded), recorded, self.coordinator.log)
        left = tuple(steps(self.pipeline, recorded, self.request.max_records))
        return Outlook(
            fork=self.fork,
            begins=begins,
            to=to,
            done=done,
            left=left,
            exists=head is not None,
            unsent=self._unsent(),
        )

    def begin(self) -> Outlook:
        """Begins the fork, unless it exists.

        Raises:
            TidemarkError: as in `outlook`; nothing was written then.
        """
        found = self.outlook()
        if not found.exists:
            self._recovery.fork(self.restore_point, self.fork)
        return replace(found, exists=True)

    def trigger(self) -> CheckpointPlan | Checkpoint | None:
        """Returns the plan of the next step, new or open; a checkpoint that was found sealed; None if nothing is left.

        Raises:
            ConflictError: the pipeline is stopped, or the fork has checkpoints that do not belong to the backfill.
            TidemarkError: as the planner raises.
        """
        if self.promoted:
            return None
        found = self.coordinator.trigger(self.pipeline, self._plan_request(), self.fork)
        if isinstance(found, Refused):
            raise _refused(found)
        if isinstance(found, OpenPlan):
            self._refuse_foreign(found.plan)
            return found.plan
        return None if isinstance(found, Covered) else found.checkpoint

    def repeat(self, execute: Execute) -> Iterator[Checkpoint]:
        """Completes one step after another, each through plan, attempt, gate and seal, until nothing is left.

        Raises:
            GateFailedError: the gate refused a step; the steps before it stay.
            TidemarkError: as in `trigger`, and as the steps of a checkpoint raise.
        """
        loop = CheckpointLoop(
            coordinator=self.coordinator,
            pipeline=self.pipeline,
            execute=execute,
            on_failure=self.on_failure,
            timeline=self.fork,
        )
        while not self.promoted:
            self._refuse_open()
            done = loop.run_once(self._plan_request())
            if isinstance(done.ended, Refused):
                raise _refused(done.ended)
            if not done.checkpoints:
                return
            yield from done.checkpoints

    def pair(self) -> Pair | None:
        """The newest checkpoint of the fork with the one that it repeats; None if the fork has repeated nothing."""
        head = self._head()
        done = () if head is None else self._done(head)
        if not done:
            return None
        newest = done[-1]
        recorded = self.coordinator.checkpoint(newest.plan.replays[-1])
        return Pair(recorded=recorded, repeated=newest, ancestor=self.restore_point.checkpoint.id)

    def promote(self, catch_up: Callable[[], object]) -> Promoted | Superseded:
        """Catches up with the live timeline and makes the fork live: one step, fenced by the slot of the closing.

        If a live checkpoint wins the slot, it is repeated on the fork and the next slot is tried.

        Args:
            catch_up: repeats the remaining steps; `repeat`, or the same in other processes.

        Raises:
            UsageError: the backfill ends before the live head.
            ConflictError: the fork reads less than the live timeline, and a promote would leave the difference behind.
            TidemarkError: as in `repeat`.
        """
        refuse_end(self.request.to)
        while True:
            catch_up()
            found = Promotion(coordinator=self.coordinator).promote(self.fork, send=self.request.send)
            if isinstance(found, Promoted | Superseded):
                return found
            if not self.outlook().left:
                names = ", ".join(c.plan.name for c in found.lacking)
                raise ConflictError(
                    f"fork {self.fork} has read less than {names}: their sources are no longer all declared",
                    safe="the fork and the live timeline are intact.",
                    next="declare the sources again, or promote the fork by hand and leave those checkpoints behind.",
                )

    @property
    def _recovery(self) -> Recovery:
        return Recovery(coordinator=self.coordinator, pipeline=self.pipeline)

    def _unsent(self) -> dict[str, tuple[Checkpoint, ...]]:
        """Checkpoints after the beginning whose rows wait in outboxes, per sink."""
        timelines, found = self.coordinator.timelines, dict[str, tuple[Checkpoint, ...]]()
        kept = {c.id for c in timelines.ancestry(self.restore_point.checkpoint)}
        for due in list_undelivered(self.coordinator):
            if due.checkpoint.id not in kept:
                found[due.table.name] = (*found.get(due.table.name, ()), due.checkpoint)
        return found

    def _plan_request(self) -> PlanRequest:
        r = self.request
        return PlanRequest(
            origin=r.origin,
            max_records=r.max_records,
            replay_to=self._target(),
            allow_non_restored_state=r.begins.allow_non_restored_state,
        )

    def _target(self) -> int:
        return _live_id(self.coordinator, self.restore_point.checkpoint) if self.request.to is None else self.request.to

    def _head(self) -> Head | None:
        """The head of the fork; None where it was not begun."""
        genesis = self.coordinator.objects.slot(self.fork, 1)
        if genesis is None:
            return None
        if not isinstance(genesis, Genesis) or genesis.parent != self.restore_point.checkpoint.id:
            raise self._other("it began at another checkpoint")
        head = self.coordinator.head(self.fork)
        if isinstance(head.entry, Closing) and not head.entry.successor:
            raise self._other("it was closed")
        return head

    def _done(self, head: Head) -> tuple[Checkpoint, ...]:
        """The fork's checkpoints that repeat others, oldest first."""
        found: list[Checkpoint] = []
        for sequence in range(2, head.sequence + 1):
            entry = self.coordinator.timelines.entry(head.timeline, sequence)
            if isinstance(entry, Closing):
                break
            if isinstance(entry, Checkpoint) and entry.plan.replays:
                found.append(entry)
        if any(c.plan.fingerprint != self.pipeline.fingerprint for c in found) and not self.promoted:
            raise self._other("other code made its checkpoints")
        return tuple(found)

    def _refuse_open(self) -> None:
        found = self.coordinator.open_plan(self.fork)
        if isinstance(found, OpenPlan | SealedPlan):
            self._refuse_foreign(found.plan)

    def _refuse_foreign(self, plan: CheckpointPlan) -> None:
        if not plan.replays:
            raise self._other(f"{plan.name} reads new records there")

    def _other(self, why: str) -> ConflictError:
        return ConflictError(
            f"timeline {self.fork} does not belong to this backfill: {why}",
            safe="the timeline stays unchanged.",
            next="give the backfill another name.",
        )


def recorded_since(coordinator: CheckpointCoordinator, begins: Checkpoint) -> list[CheckpointPlan]:
    """The plans that a new backfill from a checkpoint to the live head would repeat, oldest first.

    This reads manifests only; `Backfill.outlook` checks whether the declaration fits and Kafka has the records.

    Raises:
        ConflictError: the checkpoint is no ancestor of the live head.
    """
    return list(remaining(coordinator.timelines, ReplayProgress.at(begins), _live_id(coordinator, begins)))


def _live_id(coordinator: CheckpointCoordinator, begins: Checkpoint) -> int:
    """Id of the newest checkpoint of the live timeline; the id of the beginning if it has none."""
    entry = coordinator.head().entry
    if isinstance(entry, Checkpoint):
        return entry.id
    return entry.parent if isinstance(entry, Genesis) else begins.id


def _refused(found: Refused) -> ConflictError:
    return ConflictError(
        f"{found.reason.value}: {found.message}", safe="every completed checkpoint is intact.", next=found.next
    )
