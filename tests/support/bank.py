"""The in-memory pipeline of the coordinator's tests."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Literal, TypedDict, Unpack

from tests.support.memory import MemoryPipeline, Payment, payment
from tidemark import Fold, KafkaSource, Pipeline, TopicPattern, state
from tidemark.coordinator.checkpoints.attempts import OwnedAttempt
from tidemark.coordinator.checkpoints.failure_policy import FailureReport
from tidemark.coordinator.checkpoints.loop import CheckpointLoop
from tidemark.coordinator.records.states import NothingOpen, OpenPlan
from tidemark.declare.sources import Start
from tidemark.model.checkpoint.manifest import Checkpoint, Sealed
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.core.offsets import TopicPartition
from tidemark.ports import PlanRequest
from tidemark.testing.twin.memory import MemoryCompute, MemoryStore

P0, P1 = TopicPartition("payments", 0), TopicPartition("payments", 1)
ASK = PlanRequest(origin="test")


class Account(state.Keyed):
    """The state of an account."""

    payments: int = state.count()
    total: int | None = state.sum("amount")


class Wider(state.Keyed):
    """`Account` with an added field and a changed one."""

    payments: int = state.count()
    total: int | None = state.max("amount")
    least: int | None = state.min("amount")


PIPELINE = Pipeline(
    name="bank",
    source=KafkaSource("payments", Payment),
    operators=[Fold("accounts", key_by="account", state=Account)],
    max_dead_letters=1.0,
)


class SourceOptions(TypedDict, total=False):
    """Source options that a test may change."""

    topics: str | Sequence[str] | TopicPattern | frozenset[TopicPartition]
    start: Start
    isolation: Literal["read_committed", "read_uncommitted"]
    group: str


def sourced(**changes: Unpack[SourceOptions]) -> Pipeline:
    """The pipeline with changed source options."""
    assert PIPELINE.source is not None
    return replace(PIPELINE, source=replace(PIPELINE.source, **changes))


def at(ms: int) -> datetime:
    """Converts epoch milliseconds to a datetime."""
    return datetime.fromtimestamp(ms / 1000, tz=UTC)


@dataclass
class BankPipeline(MemoryPipeline):
    """The store, log, tables and clock of the bank, with methods that run checkpoints over them."""

    name = PIPELINE.name
    pipeline: Pipeline = PIPELINE
    store: MemoryStore = field(default_factory=MemoryStore, kw_only=True)
    reports: list[FailureReport] = field(default_factory=list)
    fail: Exception | None = None

    def __post_init__(self) -> None:
        self.log.create("payments", 2)

    def send(self, count: int, tp: TopicPartition = P0, account: str = "a", timestamp_ms: int = 0) -> None:
        """Appends `count` payments of 1."""
        for _ in range(count):
            self.log.append(tp, payment(account, 1), timestamp_ms=timestamp_ms)

    def execute(self, attempt: OwnedAttempt) -> Sealed:
        if self.fail is not None:
            raise self.fail
        return self.executed(self.pipeline, attempt)

    @property
    def loop(self) -> CheckpointLoop:
        return CheckpointLoop(
            coordinator=self.coordinator,
            pipeline=self.pipeline,
            execute=self.execute,
            on_failure=self.reports.append,
        )

    def complete(self, request: PlanRequest = ASK) -> Checkpoint:
        """Completes a checkpoint."""
        return self.loop.run_once(request).checkpoints[0]

    def plan(self, request: PlanRequest = ASK) -> CheckpointPlan:
        """Creates an open plan."""
        found = self.coordinator.trigger(self.pipeline, request)
        assert isinstance(found, OpenPlan), found
        return found.plan

    def state(self, uid: str) -> dict[tuple[object, ...], tuple[object, ...]]:
        """The field values of each key of an operator at the newest checkpoint."""
        newest = next(self.coordinator.checkpoints())
        rows = MemoryCompute(pipeline=self.pipeline, log=self.log, tables=self.tables).resolve(newest, uid)
        names = [f.name for f in newest.plan.schemas[uid].fields]
        return {key: tuple(row[name] for name in names) for key, row in rows.items()}

    def free(self) -> NothingOpen:
        """The free slot."""
        found = self.coordinator.open_plan()
        assert isinstance(found, NothingOpen), found
        return found

    def ranges(self, plan: CheckpointPlan) -> dict[TopicPartition, tuple[int, int]]:
        """The planned ranges as (start, end) pairs."""
        return {tp: (r.start, r.end) for tp, r in plan.ranges.items()}
