"""The version of a foreign table: frozen by the plan, copied by every try of it, refused where it is another one."""

from dataclasses import dataclass, field, replace

import pytest

from tests.support.memory import START_MS, Payment, payment
from tidemark import Fold, KafkaSource, Pipeline, state
from tidemark.coordinator.checkpoints.attempts import OwnedAttempt
from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.checkpoints.job import CheckpointJob
from tidemark.coordinator.records.states import Completed, OpenPlan
from tidemark.declare.pipeline import Broadcast, DeltaTable
from tidemark.errors import DataLostError, DeclarationError, NotFoundError, StateOverflowError
from tidemark.model.checkpoint.failure import FailureReason
from tidemark.model.checkpoint.manifest import Checkpoint, Sealed
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.core.offsets import TopicPartition
from tidemark.ports import PlanRequest
from tidemark.testing.twin.memory import (
    ManualClock,
    MemoryCompute,
    MemoryForeignTables,
    MemoryLog,
    MemoryStore,
    MemoryTables,
    SequentialIds,
)

ASK = PlanRequest(origin="test")


@dataclass(frozen=True)
class Owner:
    """A row of the table."""

    account: str
    name: str


@dataclass(frozen=True)
class NamedOwner(Owner):
    """The same table, one column more."""

    name: str
    city: str | None = None


class Account(state.Keyed):
    """What is remembered."""

    n: int = state.count()


def owners(path: str = "/owners", record: type = Owner, **options: int) -> Broadcast:
    """The broadcast state."""
    return Broadcast("owners", DeltaTable(path, record), key_by="account", **options)


BANK = Pipeline(
    name="bank",
    source=KafkaSource("payments", Payment),
    operators=[Fold("accounts", key_by="account", state=Account)],
    broadcast=[owners()],
)


@dataclass
class BroadcastPipeline:
    """Store, log, tables, and a foreign table with one row."""

    pipeline: Pipeline = BANK
    store: MemoryStore = field(default_factory=MemoryStore)
    log: MemoryLog = field(default_factory=MemoryLog)
    tables: MemoryTables = field(default_factory=MemoryTables)
    foreign: MemoryForeignTables = field(default_factory=MemoryForeignTables)
    clock: ManualClock = field(default_factory=lambda: ManualClock(START_MS))
    ids: SequentialIds = field(default_factory=SequentialIds)

    def __post_init__(self) -> None:
        self.log.create("payments", 1)
        self.foreign.overwrite("/owners", [Owner("a", "Ada")])

    @property
    def coordinator(self) -> CheckpointCoordinator:
        return CheckpointCoordinator(
            store=self.store, log=self.log, clock=self.clock, write_ids=self.ids, foreign=self.foreign
        )

    @property
    def compute(self) -> MemoryCompute:
        return MemoryCompute(pipeline=self.pipeline, log=self.log, tables=self.tables, foreign=self.foreign)

    def plan(self, request: PlanRequest = ASK) -> CheckpointPlan:
        found = self.coordinator.trigger(self.pipeline, request)
        assert isinstance(found, OpenPlan), found
        return found.plan

    def execute(self, plan: CheckpointPlan) -> Sealed:
        owned = self.coordinator.begin(plan)
        assert isinstance(owned, OwnedAttempt), owned
        job = CheckpointJob(
            compute=self.compute,
            tables=self.tables,
            clock=self.clock,
            write_ids=self.ids,
            listener=lambda step, moment: None,
            max_dead_letters=1.0,
        )
        return job.execute(owned)

    def complete(self, request: PlanRequest = ASK) -> Checkpoint:
        plan = self.plan(request)
        done = self.coordinator.publish(plan, self.execute(plan))
        assert isinstance(done, Completed), done
        return done.checkpoint

    def state(self, checkpoint: Checkpoint) -> dict[str, str]:
        """Name per account."""
        return {row["account"]: row["name"] for row in self.compute.resolve(checkpoint, "owners").values()}


def test_an_attempt_and_its_retry_copy_the_planned_version_whatever_was_written_since() -> None:
    world = BroadcastPipeline()
    plan = world.plan()
    assert plan.broadcast_versions == {"owners": 0}
    world.foreign.overwrite("/owners", [Owner("b", "Bo")])
    world.execute(plan)
    # The first attempt was sealed: the run that finds it publishes it, and the next plan freezes what is there now.
    first = world.coordinator.trigger(world.pipeline, ASK)
    assert isinstance(first, Completed)
    assert world.state(first.checkpoint) == {"a": "Ada"}
    second = world.complete()
    assert second.plan.broadcast_versions == {"owners": 1}
    assert world.state(second) == {"b": "Bo"}


def test_a_revoked_attempt_leaves_the_version_to_the_next() -> None:
    world = BroadcastPipeline()
    plan = world.plan()
    assert isinstance(world.coordinator.begin(plan), OwnedAttempt)
    world.foreign.overwrite("/owners", [])
    adopted = world.coordinator.trigger(world.pipeline, ASK)
    assert isinstance(adopted, OpenPlan)
    assert adopted.adopted
    assert adopted.plan == plan
    done = world.coordinator.publish(plan, world.execute(adopted.plan))
    assert isinstance(done, Completed)
    assert done.checkpoint.sealed.attempt == 2
    assert world.state(done.checkpoint) == {"a": "Ada"}


def test_an_unchanged_version_is_not_copied_again() -> None:
    world = BroadcastPipeline()
    first, second = world.complete(), world.complete()
    assert (first.plan.copies, second.plan.copies) == (("owners",), ())
    assert second.handles["owners"] == first.handles["owners"]
    ack = second.ack("owners")
    assert ack is not None
    assert (ack.read, ack.commits) == (0, ())


def test_keys_that_are_gone_are_tombstones_also_where_nothing_is_left() -> None:
    world = BroadcastPipeline()
    world.foreign.overwrite("/owners", [Owner("a", "Ada"), Owner("b", "Bo"), Owner("c", "Cy")])
    first = world.complete()
    world.foreign.overwrite("/owners", [Owner("b", "Bea")])
    second = world.complete()
    world.foreign.overwrite("/owners", [])
    third = world.complete()
    assert [world.state(c) for c in (first, second, third)] == [{"a": "Ada", "b": "Bo", "c": "Cy"}, {"b": "Bea"}, {}]
    ack = second.ack("owners")
    assert ack is not None
    assert (ack.read, ack.applied, ack.keys) == (3, 3, 3)


def test_another_record_copies_the_same_version_again() -> None:
    world = BroadcastPipeline()
    world.foreign.tables["/owners"] = [("t", (NamedOwner("a", "Ada", "Oslo"),))]
    world.complete()
    world.pipeline = replace(BANK, broadcast=[owners(record=NamedOwner)])
    second = world.complete()
    assert second.plan.copies == ("owners",)
    assert world.compute.resolve(second, "owners")["a",]["city"] == "Oslo"


def test_a_broadcast_state_that_was_a_topic_is_copied_from_its_table() -> None:
    world = BroadcastPipeline(
        pipeline=replace(BANK, broadcast=[Broadcast("owners", KafkaSource("names", Owner), key_by="account")])
    )
    world.log.create("names", 1)
    world.log.append(TopicPartition("names", 0), b'{"account":"z","name":"Zoe"}')
    assert world.state(world.complete()) == {"z": "Zoe"}
    world.pipeline = BANK
    assert world.state(world.complete()) == {"a": "Ada"}


@pytest.mark.parametrize("accident", ["rolled back", "replaced"])
def test_a_table_that_is_not_what_it_was_stops_the_plan_until_it_is_accepted(accident: str) -> None:
    world = BroadcastPipeline()
    world.foreign.overwrite("/owners", [Owner("b", "Bo")])
    world.complete()
    if accident == "rolled back":
        world.foreign.roll_back("/owners")
    else:
        world.foreign.drop("/owners")
        world.foreign.overwrite("/owners", [Owner("a", "Ada")])
    with pytest.raises(DataLostError, match=f"broadcast state owners was {accident}"):
        world.plan()
    assert world.state(world.complete(replace(ASK, accept_loss=True))) == {"a": "Ada"}
    assert world.complete().plan.copies == ()


def test_a_version_that_is_gone_before_it_is_copied_aborts_the_plan_and_the_next_one_goes_on() -> None:
    world = BroadcastPipeline()
    plan = world.plan()
    world.foreign.drop("/owners")
    with pytest.raises(DataLostError, match="version 0 of the table of broadcast state owners is gone") as lost:
        world.execute(plan)
    report = world.coordinator.record_failure(world.pipeline, plan, lost.value)
    assert report.failure.reason is FailureReason.OFFSET_LOST
    world.foreign.overwrite("/owners", [Owner("b", "Bo")])
    done = world.complete()
    assert done.plan.slot.k == 2
    assert world.state(done) == {"b": "Bo"}


@pytest.mark.parametrize(
    ("rows", "broadcast", "error"),
    [
        ([Owner("a", "1"), Owner("a", "2")], owners(), DeclarationError),
        ([Owner("a", "1"), Owner("b", "2")], owners(max_keys=1), StateOverflowError),
        ([], owners(path="/nowhere"), NotFoundError),
    ],
)
def test_what_cannot_be_copied_is_not_planned(rows: list[Owner], broadcast: Broadcast, error: type[Exception]) -> None:
    world = BroadcastPipeline(pipeline=replace(BANK, broadcast=[broadcast]))
    world.foreign.overwrite("/owners", rows)
    world.log.append(TopicPartition("payments", 0), payment("a", 1))
    with pytest.raises(error):
        world.plan()
    assert world.store.list("plans/") == []
    # What is mended is planned anew, without anything to give up first.
    world.pipeline = BANK
    world.foreign.overwrite("/owners", [Owner("c", "3")])
    assert world.state(world.complete()) == {"c": "3"}
