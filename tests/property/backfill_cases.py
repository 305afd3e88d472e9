"""Histories of a shop's sales, and a world in memory in which they are backfilled; every step of it may be killed."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from tests.support.crashes import Killed
from tests.support.memory import MemoryPipeline
from tidemark import DeltaSink, Fold, KafkaSource, Pipeline, Process, state
from tidemark.coordinator.checkpoints.attempts import OwnedAttempt
from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.checkpoints.loop import CheckpointLoop
from tidemark.coordinator.recovery.backfill import Backfill, BackfillRequest
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.declare.pipeline import Broadcast, DeltaTable
from tidemark.model.checkpoint.manifest import Checkpoint, Sealed
from tidemark.model.core.offsets import TopicPartition
from tidemark.model.core.ttl import Ttl
from tidemark.ports import PlanRequest
from tidemark.testing.twin.memory import (
    ManualClock,
    MemoryCompute,
    MemoryForeignTables,
)

DAY = datetime(2024, 3, 1, tzinfo=UTC)
DAY_MS = int(DAY.timestamp() * 1000)
HOUR_MS = 3_600_000
SHOPS = ("a", "b", "c")
RATES = "/rates"
ASK = PlanRequest(origin="test")


@dataclass(frozen=True)
class Sale:
    """One record."""

    shop: str | None
    amount: int
    at: datetime


@dataclass(frozen=True)
class Rate:
    """A row of the foreign table."""

    shop: str
    rate: int


@dataclass(frozen=True)
class Told:
    """What the process emits."""

    shop: str
    total: int


class Shop(state.Keyed):
    """A fold; `last` goes an hour of logical time after the last sale."""

    n: int = state.count()
    total: int | None = state.sum("amount")
    last: int | None = state.latest("amount", ttl=Ttl(ttl=timedelta(hours=1), clock="logical_time"))


class Wider(Shop):
    """The same with one field more."""

    n: int = state.count()
    total: int | None = state.sum("amount")
    last: int | None = state.latest("amount", ttl=Ttl(ttl=timedelta(hours=1), clock="logical_time"))
    most: int | None = state.max("amount")


class Takings(state.Keyed):
    """A process; `recent` go two hours of event time after they were added."""

    total: int = state.value(0)
    recent: list[int] = state.list(ttl=timedelta(hours=2))


Broadcasts = Mapping[str, Mapping[Any, Any]]


def as_sold(key: str, sales: Iterable[Sale], kept: Takings, broadcast: Broadcasts) -> Iterator[Told]:
    """The code that made the history."""
    for sale in sales:
        kept.total += sale.amount
        kept.recent.append(sale.amount)
    yield Told(key, kept.total)


def as_rated(key: str, sales: Iterable[Sale], kept: Takings, broadcast: Broadcasts) -> Iterator[Told]:
    """The code with its bug fixed: a sale counts by its shop's rate."""
    rate = broadcast["rates"][key].rate if key in broadcast["rates"] else 0
    for sale in sales:
        kept.total += sale.amount * rate
        kept.recent.append(sale.amount)
    yield Told(key, kept.total)


def shops(function: Any = as_sold, shop: type[state.Keyed] = Shop) -> Pipeline:
    """The pipeline."""
    return Pipeline(
        name="shops",
        source=KafkaSource("sales", Sale, event_time="at"),
        operators=[
            Fold("shops", key_by="shop", state=shop),
            Process("takings", key_by="shop", state=Takings, function=function, emits=Told, sink=DeltaSink("told")),
        ],
        broadcast=[Broadcast("rates", DeltaTable(RATES, Rate), key_by="shop")],
        max_dead_letters=1.0,
    )


@dataclass(frozen=True)
class Batch:
    """What happens before one checkpoint: time goes by, a table perhaps changes, sales come."""

    sales: tuple[tuple[int, Sale], ...]
    wait_ms: int
    rate: int | None


SALES = st.builds(
    Sale,
    shop=st.sampled_from([*SHOPS, None]),
    amount=st.integers(-5, 9),
    at=st.integers(0, 9).map(lambda n: DAY + timedelta(minutes=40 * n)),
)
BATCHES = st.builds(
    Batch,
    sales=st.lists(st.tuples(st.integers(0, 1), SALES), max_size=6).map(tuple),
    wait_ms=st.integers(0, 2 * HOUR_MS),
    rate=st.none() | st.integers(1, 4),
)


@dataclass
class ShopPipeline(MemoryPipeline):
    """Store, log, tables, clock; `kill_at` counts the steps down to a kill, `closing` runs before every promote."""

    clock: ManualClock = field(default_factory=lambda: ManualClock(DAY_MS), kw_only=True)
    foreign: MemoryForeignTables = field(default_factory=MemoryForeignTables)
    kill_at: int = 0
    closing: list[Batch] = field(default_factory=list)
    passed: int = 0

    def __post_init__(self) -> None:
        self.log.create("sales", 2)
        self.rate(1)

    @property
    def coordinator(self) -> CheckpointCoordinator:
        return replace(super().coordinator, foreign=self.foreign, listener=self.crash)

    def rate(self, rate: int) -> None:
        """A new version of the table."""
        self.foreign.overwrite(RATES, [Rate(shop, rate) for shop in SHOPS[:2]])

    def crash(self, step: str, moment: str) -> None:
        """Kills, or lets a live checkpoint win the slot that a promote wants."""
        self.passed += 1
        if self.kill_at:
            self.kill_at -= 1
            if not self.kill_at:
                raise Killed
        if (step, moment) == ("closing", "before") and self.closing:
            self.live(self.closing.pop())

    def executed(self, pipeline: Pipeline, attempt: OwnedAttempt) -> Sealed:
        return self.checkpoint_job(self.compute(pipeline), self.crash).execute(attempt)

    def compute(self, pipeline: Pipeline) -> MemoryCompute:
        """The engine's twin."""
        return MemoryCompute(pipeline=pipeline, log=self.log, tables=self.tables, foreign=self.foreign)

    def live(self, batch: Batch, pipeline: Pipeline | None = None) -> Checkpoint:
        """One checkpoint of the live timeline, after what happens before it."""
        self.clock.advance(batch.wait_ms)
        if batch.rate is not None:
            self.rate(batch.rate)
        for partition, sale in batch.sales:
            value = {"amount": sale.amount, "at": sale.at.isoformat()} | ({"shop": sale.shop} if sale.shop else {})
            self.log.append(TopicPartition("sales", partition), repr(value).replace("'", '"').encode())
        made = pipeline or shops()
        loop = CheckpointLoop(coordinator=self.coordinator, pipeline=made, execute=lambda a: self.executed(made, a))
        return loop.run_once(ASK).checkpoints[0]

    def history(self, batches: Sequence[Batch]) -> list[Checkpoint]:
        """A live timeline."""
        return [self.live(batch) for batch in batches]

    def backfill(self, at: Checkpoint, pipeline: Pipeline, **more: Any) -> Backfill:
        """A backfill from a checkpoint."""
        request = BackfillRequest(begins=RestoreRequest(checkpoint=at.id), **more)
        return Backfill(coordinator=self.coordinator, pipeline=pipeline, request=request)

    def rows(self, checkpoint: Checkpoint, uid: str) -> dict[Any, dict[str, Any]]:
        """State per key, without Tidemark's own columns."""
        found = self.compute(shops()).resolve(checkpoint, uid)
        return {key: {n: v for n, v in row.items() if not n.startswith("_")} for key, row in found.items()}

    def all_rows(self, checkpoint: Checkpoint) -> dict[str, dict[Any, dict[str, Any]]]:
        """State of all operators."""
        return {uid: self.rows(checkpoint, uid) for uid in checkpoint.plan.schemas}

    def told(self, checkpoint: Checkpoint) -> list[tuple[Any, ...]]:
        """What the sink has, in order of positions."""
        table = checkpoint.sinks["takings"]
        rows = self.tables.rows(table.handle)
        return sorted((r["_partition"], r["_offset"], r["_path"], r["shop"], r["total"]) for r in rows)
