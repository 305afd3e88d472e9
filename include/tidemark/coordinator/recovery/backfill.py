"""Backfill from a savepoint as one action: fork, repeat what was recorded since with today's code, promote (Q7, N11).

Nothing is remembered but what is in the store: the fork is found by its name, its place by its newest checkpoint, and
whether it is over by the closings. So a repeated call goes on wherever the first one died, in any process, and live
checkpoints go on meanwhile.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.checkpoints.deliveries import undelivered
from tidemark.coordinator.checkpoints.failure_policy import FailureReport
from tidemark.coordinator.checkpoints.loop import CheckpointLoop, Execute
from tidemark.coordinator.plans.replay_ranges import (
    RecordedStep,
    ReplayProgress,
    refuse_end,
    refuse_lost,
    remaining,
    steps,
    whole,
)
from tidemark.coordinator.plans.restore_point import Beginning
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
        fork: its name; empty = a name made of the beginning and the code, so that other code begins another fork.
        to: id of the checkpoint to end with; None = the live head at that time.
        max_records: offsets per partition of one step, which may then cover several checkpoints; None = one each.
        origin: the DAG run id, or "cli".
        promotes: whether the fork may become live; a request that also has a `to` is refused.
        send: once it is live, the fork sends the records that it emitted and the live timeline had not sent.
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
    """What a backfill has done and what is left of it.

    Attributes:
        fork: name of its timeline.
        begins: id of the checkpoint that it begins at.
        to: id of the checkpoint that it repeats up to.
        done: checkpoints of the fork, oldest first.
        left: the steps that are left, in order.
        promoted: whether the fork is, or once was, the live timeline: nothing is left then.
        exists: whether the fork was begun.
        unsent: per Kafka sink the checkpoints that the fork replaces and whose rows were not delivered: without `send`
            nothing of what they emitted is ever sent.
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
    """A recorded checkpoint and the fork's answer to it; `ancestor` is the id of the checkpoint that both came from."""

    recorded: Checkpoint
    repeated: Checkpoint
    ancestor: int


@dataclass(frozen=True, kw_only=True)
class Backfill:
    """One backfill of one pipeline.

    Attributes:
        coordinator: of the pipeline.
        pipeline: the declaration of today.
        request: what to backfill.
        on_failure: told of every failure before its error is raised.
    """

    coordinator: CheckpointCoordinator
    pipeline: Pipeline
    request: BackfillRequest
    on_failure: Callable[[FailureReport], None] = field(default=lambda report: None)

    @cached_property
    def beginning(self) -> Beginning:
        """The checkpoint that the request names, read once.

        Raises:
            NotFoundError, ReleasedError, ConflictError: as `RestoreRequest.beginning`.
        """
        return self.request.begins.beginning(self.coordinator)

    @property
    def fork(self) -> str:
        """Name of the fork.

        Raises:
            NameRefusedError: the name is not on the allow-list.
        """
        begins = self.beginning.savepoint or self.beginning.checkpoint.plan.name
        made = f"backfill-{begins[:_LONGEST]}-{self.pipeline.fingerprint[:8]}"
        return checked_name("timeline", self.request.fork or made)

    @property
    def promoted(self) -> bool:
        """Whether the fork is, or once was, the live timeline."""
        return any(closing.successor == self.fork for closing in self.coordinator.timelines.closings())

    def outlook(self) -> Outlook:
        """What is done and what is left; reads only, and finds out before anything is written whether it can be done.

        Raises:
            DataLostError: Kafka has not all of the records any more; the message has the exact gaps.
            ConflictError: the checkpoint is not on the line to the end, or the fork is not of this backfill.
            IncompatibleStateError: the declaration does not fit the state of the savepoint.
            NotFoundError, BrokerError, CorruptObjectError: as they are raised below.
        """
        begins, to = self.beginning.checkpoint.id, self._target()
        head = self._head()
        done = () if head is None else self._done(head)
        if self.promoted:
            return Outlook(fork=self.fork, begins=begins, to=to, done=done, promoted=True, exists=True)
        # As the fork would begin: this looks at the declaration, and at the files of the state.
        self._recovery.genesis(self.beginning)
        place = ReplayProgress.at(self.beginning.checkpoint, self.fork) if head is None else ReplayProgress.of(head)
        recorded = remaining(self.coordinator.timelines, place, to)
        refuse_lost(self.pipeline, whole(self.pipeline, recorded), recorded, self.coordinator.log)
        left = steps(self.pipeline, recorded, self.request.max_records)
        return Outlook(
            fork=self.fork,
            begins=begins,
            to=to,
            done=done,
            left=tuple(left),
            exists=head is not None,
            unsent=self._unsent(),
        )

    def begin(self) -> Outlook:
        """Begins the fork, unless it is there.

        Raises:
            TidemarkError: as `outlook`; nothing was written then.
        """
        found = self.outlook()
        if not found.exists:
            self._recovery.fork(self.beginning, self.fork)
        return replace(found, exists=True)

    def trigger(self) -> CheckpointPlan | Checkpoint | None:
        """The plan of the next step, new or open; a checkpoint that was found sealed; None where nothing is left.

        Raises:
            ConflictError: the pipeline is stopped, or somebody runs checkpoints of his own on the fork.
            TidemarkError: as the planner raises.
        """
        if self.promoted:
            return None
        found = self.coordinator.trigger(self.pipeline, self._asked(), self.fork)
        if isinstance(found, Refused):
            raise _refused(found)
        if isinstance(found, OpenPlan):
            self._refuse_foreign(found.plan)
            return found.plan
        return None if isinstance(found, Covered) else found.checkpoint

    def repeat(self, execute: Execute) -> Iterator[Checkpoint]:
        """Completes step after step, each through plan, attempt, gate and seal, until nothing is left.

        Raises:
            GateFailedError: the gate refused a step; the steps before it stay.
            TidemarkError: as `trigger`, and as the steps of a checkpoint raise.
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
            done = loop.run_once(self._asked())
            if isinstance(done.ended, Refused):
                raise _refused(done.ended)
            if not done.checkpoints:
                return
            yield from done.checkpoints

    def pair(self) -> Pair | None:
        """The newest checkpoint of the fork beside the one it repeats; None where it has repeated nothing."""
        head = self._head()
        done = () if head is None else self._done(head)
        if not done:
            return None
        newest = done[-1]
        recorded = self.coordinator.checkpoint(newest.plan.replays[-1])
        return Pair(recorded=recorded, repeated=newest, ancestor=self.beginning.checkpoint.id)

    def promote(self, catch_up: Callable[[], object]) -> Promoted | Superseded:
        """Catches up with the live timeline and makes the fork live: one step, fenced by the slot of the closing.

        A live checkpoint that wins the slot is repeated on the fork, and the slot after it is tried.

        Args:
            catch_up: repeats what is left; `repeat`, or the same in other processes.

        Raises:
            UsageError: the backfill ends before the live head.
            ConflictError: the fork reads less than the live timeline: what it lacks would be left behind.
            TidemarkError: as `repeat`.
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
                    f"fork {self.fork} has read less than {names}: sources of then are not declared now",
                    safe="the fork and the live timeline are intact.",
                    next="declare them again, or promote the fork by hand and leave those checkpoints behind.",
                )

    @property
    def _recovery(self) -> Recovery:
        return Recovery(coordinator=self.coordinator, pipeline=self.pipeline)

    def _unsent(self) -> dict[str, tuple[Checkpoint, ...]]:
        """What waits in outboxes of checkpoints that come after the beginning."""
        timelines, found = self.coordinator.timelines, dict[str, tuple[Checkpoint, ...]]()
        kept = {c.id for c in timelines.ancestry(self.beginning.checkpoint)}
        for due in undelivered(self.coordinator):
            if due.checkpoint.id not in kept:
                found[due.table.name] = (*found.get(due.table.name, ()), due.checkpoint)
        return found

    def _asked(self) -> PlanRequest:
        r = self.request
        return PlanRequest(
            origin=r.origin,
            max_records=r.max_records,
            replay_to=self._target(),
            allow_non_restored_state=r.begins.allow_non_restored_state,
        )

    def _target(self) -> int:
        return _live_id(self.coordinator, self.beginning.checkpoint) if self.request.to is None else self.request.to

    def _head(self) -> Head | None:
        """The head of the fork; None where it was not begun."""
        genesis = self.coordinator.objects.slot(self.fork, 1)
        if genesis is None:
            return None
        if not isinstance(genesis, Genesis) or genesis.parent != self.beginning.checkpoint.id:
            raise self._other("it began elsewhere")
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
            raise self._other(f"{plan.name} reads on there")

    def _other(self, why: str) -> ConflictError:
        return ConflictError(
            f"timeline {self.fork} is not that of this backfill: {why}",
            safe="it stays as it is.",
            next="give the backfill another name.",
        )


def recorded_since(coordinator: CheckpointCoordinator, begins: Checkpoint) -> list[CheckpointPlan]:
    """What a backfill from a checkpoint to the live head repeats, oldest first, if it has not begun yet.

    By manifests alone: whether the declaration fits and Kafka has the records, `Backfill.outlook` finds out.

    Raises:
        ConflictError: the checkpoint is not on the line to the live head.
    """
    return remaining(coordinator.timelines, ReplayProgress.at(begins), _live_id(coordinator, begins))


def _live_id(coordinator: CheckpointCoordinator, begins: Checkpoint) -> int:
    """Id of the checkpoint that the live timeline is at; of the beginning where it has none."""
    entry = coordinator.head().entry
    if isinstance(entry, Checkpoint):
        return entry.id
    return entry.parent if isinstance(entry, Genesis) else begins.id


def _refused(found: Refused) -> ConflictError:
    return ConflictError(
        f"{found.reason.value}: {found.message}", safe="every completed checkpoint is intact.", next=found.next
    )
