"""Runs a pipeline in memory, step by step, through the real coordinator: a test harness, as Flink calls it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from tidemark.coordinator.checkpoints.attempts import OwnedAttempt
from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.checkpoints.job import CheckpointJob
from tidemark.coordinator.checkpoints.loop import CheckpointLoop
from tidemark.coordinator.records.states import Covered
from tidemark.coordinator.records.timelines import Erasures
from tidemark.coordinator.recovery.restore import Recovery
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.coordinator.recovery.savepoints import Savepoints
from tidemark.declare.pipeline import Gate, Pipeline
from tidemark.errors import NotFoundError, UsageError
from tidemark.model.checkpoint.manifest import Checkpoint, Sealed
from tidemark.model.core.names import parse_id
from tidemark.model.retention.savepoint import SavepointRequest
from tidemark.ports import PlanRequest
from tidemark.testing.results import MadeWith, Replayed
from tidemark.testing.script import BARRIER, Barrier, Crash, Restore
from tidemark.testing.twin.memory import (
    Feed,
    ManualClock,
    MemoryCompute,
    MemoryForeignTables,
    MemoryLog,
    MemorySender,
    MemoryStore,
    MemoryTables,
    SequentialIds,
    epoch_ms,
)

__all__ = ["Harness"]

_NOW_MS = 4_102_444_800_000
"""The replay's clock (2100-01-01), which is later than any event time that a test is likely to use."""


class _Killed(BaseException):
    """Simulates the end of the process, so no code in it may catch this."""


@dataclass
class _World:
    """The parts that survive a crash: store, log and tables; and the crashes that are due."""

    parallelism: int
    store: MemoryStore = field(default_factory=MemoryStore)
    log: MemoryLog = field(default_factory=MemoryLog)
    tables: MemoryTables = field(default_factory=MemoryTables)
    clock: ManualClock = field(default_factory=lambda: ManualClock(_NOW_MS))
    ids: SequentialIds = field(default_factory=SequentialIds)
    foreign: MemoryForeignTables = field(default_factory=MemoryForeignTables)
    sender: MemorySender = field(default_factory=MemorySender)
    due: list[Crash] = field(default_factory=list)
    passed: dict[Crash, None] = field(default_factory=dict)

    def compute(self, pipeline: Pipeline) -> MemoryCompute:
        return MemoryCompute(
            pipeline=pipeline,
            log=self.log,
            tables=self.tables,
            evaluates_gate=True,
            foreign=self.foreign,
            parallelism=self.parallelism,
            blocked=Erasures(self.coordinator(pipeline).objects).blocked_keys,
        )

    def coordinator(self, pipeline: Pipeline) -> CheckpointCoordinator:
        return CheckpointCoordinator(
            store=self.store,
            log=self.log,
            clock=self.clock,
            write_ids=self.ids,
            listener=self.pass_step,
            files_exist=self.tables.files_exist,
            find_letters=self.tables.find_letters,
            foreign=self.foreign,
            name=pipeline.name,
        )

    def pass_step(self, step: str, moment: str) -> None:
        self.passed[Crash(step, moment)] = None
        if self.due and (self.due[0].step, self.due[0].moment) == (step, moment):
            del self.due[0]
            raise _Killed

    def execute(self, pipeline: Pipeline, attempt: OwnedAttempt) -> Sealed:
        job = CheckpointJob(
            compute=self.compute(pipeline),
            tables=self.tables,
            clock=self.clock,
            write_ids=self.ids,
            listener=self.pass_step,
            max_dead_letters=pipeline.max_dead_letters,
            sender=self.sender,
        )
        return job.execute(attempt)


class Harness:
    """A pipeline in memory that a test feeds and checkpoints step by step; `replay` runs a whole script on one.

    Only the outside world is simulated. Use it where a script is too little, for instance to continue after an error:

    >>> from dataclasses import dataclass
    >>> from tidemark import Fold, KafkaSource, Pipeline, state
    >>> @dataclass(frozen=True)
    ... class Sale:
    ...     shop: str
    ...     cents: int
    >>> class Shop(state.Keyed):
    ...     cents: int = state.sum("cents")
    >>> shops = Fold("shops", key_by="shop", state=Shop)
    >>> harness = Harness(Pipeline(name="sales", source=KafkaSource("sales", Sale), operators=[shops]))
    >>> harness.send(b"{", Sale("north", 5))
    >>> harness.checkpoint()  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    tidemark.errors.DeadLettersExceededError: too many dead letters: shops: 1 of 2 records (50.0%) were not applied, ...
    Safe: every completed checkpoint of sales is intact; chk-1 was not published.
    Next: look at the records, fix the producer or the record type, or raise max_dead_letters.
    >>> harness.send(*[Sale("north", 1)] * 20)
    >>> harness.checkpoint().id
    2
    >>> harness.results.state("shops")["north"].cents
    25

    Args:
        pipeline: the declaration.
        partitions: partitions per topic; records without a key are distributed over them in turn.
        parallelism: tasks of an operator with operator state; keys are divided over them as in Spark.
        gate: True = evaluate the pipeline's gate with Great Expectations on pandas; False = no gate; or a function that
            takes its place.

    Raises:
        UsageError: an input is a `TopicPattern`, which names no topic.
    """

    def __init__(
        self, pipeline: Pipeline, *, partitions: int = 1, parallelism: int = 1, gate: Gate | bool = True
    ) -> None:
        self._gate = gate
        self._pipeline = self._with_gate(pipeline)
        self._whole = _unbounded(self._pipeline)
        self._world = _World(parallelism)
        self._feed = Feed(self._pipeline, self._world.log, partitions)
        self._waiting: list[object] = []
        self._made: dict[int, MadeWith] = {}
        self._checkpoints: list[Checkpoint] = []
        self._crashes = 0

    @property
    def results(self) -> Replayed:
        """What the checkpoints so far have left."""
        made, world = dict(self._made), self._world
        return Replayed(tuple(self._checkpoints), self._crashes, made, world.tables, world.sender)

    def send(self, *records: object) -> None:
        """Sends records, for the next checkpoint to read; see `replay` for their forms.

        A record without a timestamp gets its event time, if it is an instance of a dataclass that has one, else the
        time of the next checkpoint.
        """
        self._waiting += records

    def overwrite(self, path: str, records: Sequence[object]) -> None:
        """Writes a new version of a broadcast state's `DeltaTable`, with exactly these rows."""
        self._world.foreign.overwrite(path, records)

    def declare(self, pipeline: Pipeline) -> None:
        """Goes on with another declaration of the same pipeline; the next checkpoint checks that it fits the state.

        Raises:
            UsageError: it has another name, which would be another pipeline; or an input is a `TopicPattern`.
        """
        if pipeline.name != self._pipeline.name:
            raise UsageError(
                f"pipeline {pipeline.name!r} after {self._pipeline.name!r}: it has state of its own",
                next="give both declarations one name, or replay them separately.",
            )
        self._flush()
        self._pipeline = self._with_gate(pipeline)
        self._whole = _unbounded(self._pipeline)
        self._feed.declare(self._pipeline)

    def checkpoint(self, barrier: Barrier = BARRIER, crashes: Sequence[Crash] = ()) -> Checkpoint:
        """Completes one checkpoint over the records sent so far; attempts that are killed are repeated.

        Args:
            barrier: its options.
            crashes: where attempts die, one after the other.

        Raises:
            UsageError: a time has no zone, or goes back; or a crash point is never reached.
            ConflictError: the name of the savepoint is taken.
            TidemarkError: an error of a checkpoint, such as GateFailedError. The next one reads the records again.
        """
        request = self._request(barrier)
        self._flush(before_the_end=barrier.until is not None)
        with self._dying_at(crashes):
            self._complete(request)
        found = self._newest()
        assert found is not None  # noqa: S101  (it was completed just now)
        made = MadeWith(self._pipeline, self._world.compute(self._pipeline), tuple(self._world.passed))
        self._made[found.id] = made
        self._checkpoints.append(found)
        if barrier.savepoint is not None:
            pin = SavepointRequest(name=barrier.savepoint, owner="replay", origin="replay", checkpoint=found.id)
            Savepoints(self._coordinator).create(pin)
        return found

    def restore(self, restore: Restore) -> None:
        """Continues from an earlier checkpoint.

        Raises:
            NotFoundError: no such checkpoint or savepoint.
            IncompatibleStateError: the declaration does not fit its state.
        """
        if restore.pipeline is not None:
            self.declare(restore.pipeline)
        is_id = restore.to.removeprefix("chk-").isdecimal()
        request = RestoreRequest(
            checkpoint=parse_id(restore.to) if is_id else None,
            savepoint=None if is_id else restore.to,
            restore_sinks=restore.restore_sinks,
            renamed=restore.renamed,
            allow_non_restored_state=restore.allow_non_restored_state,
            request=f"replay-{self._world.ids()}",
        )
        coordinator = self._coordinator
        try:
            point = request.find_restore_point(coordinator)
        except NotFoundError as error:
            known = [c.plan.name for c in self._checkpoints] + [s.name for s in Savepoints(coordinator).list()]
            raise NotFoundError(error.what, next=f"name one of: {', '.join(known) or 'none yet'}.") from None
        Recovery(coordinator=coordinator, pipeline=self._pipeline).restore(point, request.request)

    @property
    def _coordinator(self) -> CheckpointCoordinator:
        return self._world.coordinator(self._pipeline)

    def _with_gate(self, pipeline: Pipeline) -> Pipeline:
        if self._gate is True:
            return pipeline
        return replace(pipeline, gate=None if self._gate is False else self._gate)

    def _request(self, barrier: Barrier) -> PlanRequest:
        logical_time, until = barrier.logical_time, barrier.until
        if None not in (logical_time, until) and logical_time != until:
            raise UsageError(
                f"logical_time={logical_time} and until={until}: logical time is the end of the interval",
                next="give until= only.",
            )
        given = until if logical_time is None else logical_time
        if given is not None:
            self._move_clock(epoch_ms(given, "logical_time" if until is None else "until"))
        # The author says the time, so a leap of logical time is no clock that is wrong.
        return PlanRequest(
            origin="replay",
            interval_end=until,
            until_interval_end=until is not None,
            accept_time=True,
            allow_non_restored_state=barrier.allow_non_restored_state,
            drains=barrier.drains,
        )

    def _move_clock(self, now_ms: int) -> None:
        before = self._newest()
        if before is not None and now_ms < before.plan.logical_time_ms:
            was = datetime.fromtimestamp(before.plan.logical_time_ms / 1000, tz=UTC)
            first = " (the default, without a time)" if before.plan.logical_time_ms == _NOW_MS else ""
            raise UsageError(
                f"logical time goes back: {before.plan.name} has {was.isoformat()}{first}",
                next="give every barrier a time, none before that of the barrier before.",
            )
        self._world.clock.ms = now_ms

    def _flush(self, *, before_the_end: bool = False) -> None:
        waiting, self._waiting = self._waiting, []
        now_ms = self._world.clock.now_ms() - before_the_end
        for record in waiting:
            at = self._feed.event_time_of(record)
            self._feed.send(record, now_ms if at is None else epoch_ms(at, "event time"))

    @contextmanager
    def _dying_at(self, crashes: Sequence[Crash]) -> Iterator[None]:
        self._world.due, self._world.passed = list(crashes), {}
        try:
            yield
            left = list(self._world.due)
        finally:
            self._world.due = []
        if left:
            raise UsageError(
                f"the crash point {left[0].step}:{left[0].moment} was never reached",
                next="name a step of this checkpoint; an operator without records writes no run.",
            )

    def _complete(self, request: PlanRequest) -> None:
        """Makes attempts until a new checkpoint is complete, and counts those that are killed."""
        known = self._newest_id
        whole = self._whole
        loop = CheckpointLoop(
            coordinator=self._coordinator, pipeline=whole, execute=lambda attempt: self._world.execute(whole, attempt)
        )
        while self._newest_id == known or self._repeats:
            try:
                ended = loop.run_once(request).ended
            except _Killed:
                self._crashes += 1
                continue
            if isinstance(ended, Covered) and self._newest_id != known:
                return  # a repeated checkpoint covers the interval
            if isinstance(ended, Covered):
                raise UsageError(
                    f"until={request.interval_end} is covered by {ended.checkpoint.plan.name} already",
                    next="give each barrier a later until=.",
                )
            if ended is not None:
                raise UsageError(f"no checkpoint: {ended.message}", next=ended.next)

    @property
    def _repeats(self) -> bool:
        """Whether the newest checkpoint repeats one, as the first ones after a restore that keeps sinks may."""
        found = self._newest()
        return found is not None and bool(found.plan.replays)

    @property
    def _newest_id(self) -> int:
        found = self._newest()
        return 0 if found is None else found.id

    def _newest(self) -> Checkpoint | None:
        return next(iter(self._coordinator.checkpoints()), None)


def _unbounded(pipeline: Pipeline) -> Pipeline:
    """A barrier is one checkpoint, whatever bounds one when records wait, and however soon it comes."""
    return replace(pipeline, max_records=None, max_bytes=None, min_pause=timedelta(0))
