"""Two topics of two types, a broadcast topic and table, under one barrier, on real Kafka, Spark and Delta."""

import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from tests.support.kafka import Sent, Topics
from tests.support.spark_warehouse import warehouse_of
from tidemark import Broadcast, DeltaTable, Fold, KafkaSource, Pipeline, Process, state
from tidemark.coordinator.checkpoints.attempts import OwnedAttempt
from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.checkpoints.job import CheckpointJob
from tidemark.coordinator.records.states import Completed, OpenPlan
from tidemark.engine.compute import SparkCompute
from tidemark.engine.read.source import KafkaOptions
from tidemark.engine.state.resolve_sql import resolve_state
from tidemark.errors import GateFailedError, StateOverflowError
from tidemark.kafka.record_reader import KafkaRecords
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.core.offsets import TopicPartition
from tidemark.ports import PlanRequest
from tidemark.readers.state_reader import read_state
from tidemark.tables.delta_tables import DeltaTables
from tidemark.tables.foreign_tables import DeltaForeignTables
from tidemark.testing.twin.memory import ManualClock, MemoryStore

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
ASK = PlanRequest(origin="test")


@dataclass(frozen=True)
class Sale:
    """A record of the first source."""

    item: str
    cents: int
    at: datetime


@dataclass(frozen=True)
class Delivery:
    """A record of the second source."""

    shelf: int
    pieces: int
    arrived: datetime


@dataclass(frozen=True)
class Place:
    """A struct in a broadcast row."""

    city: str
    floor: int | None


@dataclass(frozen=True)
class Rule:
    """A row of the broadcast topic."""

    item: str
    rate: int
    where: Place | None = None
    since: datetime | None = None


@dataclass(frozen=True)
class Owner:
    """A row of the foreign table."""

    item: str
    name: str
    places: list[Place] | None = None
    since: datetime | None = None


class Sold(state.Keyed):
    """Of one item."""

    cents: int | None = state.sum("cents")


class ShelfStock(state.Keyed):
    """Of one shelf."""

    pieces: int | None = state.sum("pieces")


class Shown(state.Keyed):
    """What the function was shown, once per record."""

    shown: list[str] = state.list()


def look(
    item: str, sales: Iterator[Sale], remembered: Shown, broadcast: Mapping[str, Mapping[Any, Any]]
) -> Iterator[None]:
    """Notes what is broadcast, as text, so that types show as well."""
    for _ in sales:
        remembered.shown.append(f"{broadcast['rules'].get(item)} {broadcast['owners'].get(item)}")
    return iter(())


class Shop:
    """A pipeline with its topics, its foreign table and its warehouse; checkpoints are made by the real coordinator."""

    def __init__(self, spark: SparkSession, broker: str, topics: Topics, root: Path) -> None:
        self.spark, self.broker, self.topics, self.root = spark, broker, topics, root / "warehouse"
        self.sales, self.deliveries, self.rules = topics.make(partitions=2), topics.make(), topics.make()
        self.owners = str(root / "owners")
        self.store, self.ids = MemoryStore(), (f"{n:032x}" for n in itertools.count(1))
        self.tables = DeltaTables(warehouse=str(self.root), clock=ManualClock())
        self.pipeline = Pipeline(
            name="shop",
            sources={
                "sales": KafkaSource(self.sales, Sale, event_time="at"),
                "deliveries": KafkaSource(self.deliveries, Delivery, event_time="arrived"),
            },
            operators=[
                Fold("sold", key_by="item", state=Sold, input="sales"),
                Process("shown", key_by="item", state=Shown, function=look, input="sales"),
                Fold("shelves", key_by="shelf", state=ShelfStock, input="deliveries"),
            ],
            broadcast=[
                Broadcast("rules", KafkaSource(self.rules, Rule), key_by="item"),
                Broadcast("owners", DeltaTable(self.owners, Owner), key_by="item"),
            ],
            max_dead_letters=1.0,
        )

    def own(self, *owners: Owner) -> None:
        """A new version of the foreign table."""
        place = pa.struct([("city", pa.string()), ("floor", pa.int64())])
        columns = [("item", pa.string()), ("name", pa.string()), ("places", pa.list_(place))]
        schema = pa.schema([*columns, ("since", pa.timestamp("us", tz="UTC"))])
        rows = pa.Table.from_pylist([asdict(o) for o in owners], schema=schema)
        write_deltalake(self.owners, rows, mode="overwrite")

    def send(self, topic: str, *records: object, partition: int = 0) -> None:
        """Sends records; a rule, or the delete of one (its item as text), has its item as message key."""
        self.topics.produce(topic, [_sent(r, partition) for r in records])

    @property
    def coordinator(self) -> CheckpointCoordinator:
        return CheckpointCoordinator(
            store=self.store,
            log=KafkaRecords(self.broker),
            clock=ManualClock(int(NOON.timestamp() * 1000)),
            write_ids=lambda: next(self.ids),
            foreign=DeltaForeignTables(),
        )

    def checkpoint(self) -> Checkpoint:
        """Plans, executes and publishes the next one."""
        coordinator = self.coordinator
        found = coordinator.trigger(self.pipeline, ASK)
        assert isinstance(found, OpenPlan), found
        owned = coordinator.begin(found.plan)
        assert isinstance(owned, OwnedAttempt), owned
        job = CheckpointJob(
            compute=SparkCompute(
                pipeline=self.pipeline,
                warehouse=warehouse_of(self.spark, self.root),
                kafka=KafkaOptions(bootstrap=self.broker, poll_timeout_ms=5_000),
                log=KafkaRecords(self.broker),
                foreign=DeltaForeignTables(),
            ),
            tables=self.tables,
            clock=ManualClock(),
            write_ids=lambda: next(self.ids),
            listener=lambda step, moment: None,
            max_dead_letters=self.pipeline.max_dead_letters,
        )
        done = coordinator.publish(found.plan, job.execute(owned))
        assert isinstance(done, Completed), done
        return done.checkpoint

    def state(self, checkpoint: Checkpoint, uid: str) -> list[dict[str, Any]]:
        """State by DuckDB and by Spark, which must agree; sorted by key, without `_changed`."""
        schema, handle = checkpoint.plan.schemas[uid], checkpoint.handles[uid]
        by_duckdb = read_state(str(self.root), schema, handle, checkpoint.now)
        by_spark = (
            resolve_state(warehouse_of(self.spark, self.root), schema, handle, checkpoint.now)
            .toArrow()
            .cast(by_duckdb.schema)
        )
        keys = [(k.name, "ascending") for k in schema.keys]
        found = by_duckdb.sort_by(keys).drop_columns(["_changed"]).to_pylist()
        assert by_spark.sort_by(keys).drop_columns(["_changed"]).to_pylist() == found
        return list(found)

    def shown(self, checkpoint: Checkpoint) -> dict[str, list[str]]:
        """What the function was shown, per item."""
        return {row["item"]: row["shown"] for row in self.state(checkpoint, "shown")}


def _sent(record: object, partition: int) -> Sent:
    if isinstance(record, bytes):
        return Sent(record, partition=partition)
    if isinstance(record, str):
        return Sent(None, key=record.encode(), partition=partition)
    body = asdict(record)  # type: ignore[call-overload]
    key = record.item.encode() if isinstance(record, Rule) else None
    return Sent(json.dumps(body, default=datetime.isoformat).encode(), key=key, partition=partition)


@pytest.fixture
def shop(spark: SparkSession, broker: str, topics: Topics, tmp_path: Path) -> Shop:
    """A shop with an empty table of owners."""
    made = Shop(spark, broker, topics, tmp_path)
    made.own()
    return made


def test_two_types_and_two_broadcast_states_share_one_barrier(shop: Shop) -> None:
    rule, owner = Rule("a", 1, Place("Oslo", None), NOON), Owner("a", "Ada", [Place("Rome", 2)], NOON)
    shop.own(owner, Owner("b", "Bo"))
    shop.send(shop.sales, Sale("a", 5, NOON), Sale("b", 7, NOON), b"{")
    shop.send(shop.sales, Sale("a", 6, NOON.replace(hour=13)), partition=1)
    shop.send(shop.deliveries, Delivery(1, 10, NOON.replace(hour=9)))
    shop.send(shop.rules, Rule("a", 9), rule, Rule("b", 2), b"[]")
    one = shop.checkpoint()
    assert shop.state(one, "sold") == [{"item": "a", "cents": 11}, {"item": "b", "cents": 7}]
    assert shop.state(one, "shelves") == [{"shelf": 1, "pieces": 10}]
    assert shop.state(one, "rules") == [asdict(rule), asdict(Rule("b", 2))]
    assert shop.state(one, "owners") == [asdict(owner), asdict(Owner("b", "Bo"))]
    assert shop.shown(one) == {"a": [f"{rule} {owner}"] * 2, "b": [f"{Rule('b', 2)} {Owner('b', 'Bo')}"]}
    assert {a.uid: (a.read, a.dead_lettered) for a in one.sealed.acks} == {
        "sold": (4, 1), "shown": (4, 1), "shelves": (1, 0), "rules": (4, 1), "owners": (2, 0),
    }  # fmt: skip
    facts = one.sealed.facts
    assert facts.records == 9
    assert facts.watermarks == {
        TopicPartition(shop.sales, 0): _ms(12),
        TopicPartition(shop.sales, 1): _ms(12),  # its time is ahead of the logical time, noon
        TopicPartition(shop.deliveries, 0): _ms(9),
    }
    assert facts.watermark_ms == _ms(12) == one.plan.logical_time_ms


def test_rules_and_owners_change_between_checkpoints(shop: Shop) -> None:
    sale = Sale("a", 1, NOON)
    shop.send(shop.sales, sale)
    shop.send(shop.rules, Rule("a", 1))
    one = shop.checkpoint()
    shop.send(shop.sales, sale)
    shop.send(shop.rules, Rule("a", 3), "a", Rule("b", 2))
    shop.own(Owner("a", "Ada"), Owner("z", "Zoe"))
    two = shop.checkpoint()
    shop.send(shop.sales, sale)
    shop.send(shop.rules, "b")
    shop.own(Owner("z", "Zoe"))
    three = shop.checkpoint()
    assert shop.shown(three)["a"] == [f"{Rule('a', 1)} None", f"None {Owner('a', 'Ada')}", "None None"]
    assert [c.plan.broadcast_versions for c in (one, two, three)] == [{"owners": n} for n in range(3)]
    assert shop.state(two, "rules") == [asdict(Rule("b", 2))]
    assert [row["item"] for row in shop.state(two, "owners")] == ["a", "z"]
    assert [row["item"] for row in shop.state(three, "owners")] == ["z"]
    assert shop.state(three, "rules") == []


def test_a_topic_that_was_taken_out_may_be_deleted(shop: Shop) -> None:
    shop.send(shop.deliveries, Delivery(1, 10, NOON))
    shop.send(shop.sales, Sale("a", 5, NOON))
    shop.checkpoint()
    sources = {"sales": shop.pipeline.sources["sales"]}
    shop.pipeline = replace(shop.pipeline, sources=sources, operators=shop.pipeline.operators[:2])
    shop.topics.delete(shop.deliveries)
    shop.send(shop.sales, Sale("a", 5, NOON))
    asked = replace(ASK, allow_non_restored_state=True)
    found = shop.coordinator.trigger(shop.pipeline, asked)
    assert isinstance(found, OpenPlan)
    done = shop.checkpoint()
    assert shop.state(done, "sold") == [{"item": "a", "cents": 10}]


def test_a_broadcast_state_beyond_its_bound_fails_the_checkpoint(shop: Shop) -> None:
    rules, owners = shop.pipeline.broadcast
    shop.pipeline = replace(shop.pipeline, broadcast=[replace(rules, max_keys=2), owners])
    shop.send(shop.rules, *(Rule(f"i{n}", n) for n in range(3)))
    shop.send(shop.sales, Sale("a", 5, NOON))
    with pytest.raises(StateOverflowError, match="broadcast state rules has more than 2 keys"):
        shop.checkpoint()


def test_a_gate_judges_the_records_of_each_source(shop: Shop) -> None:
    def gate() -> dict[str, Any]:
        import great_expectations.expectations as gxe

        positive = gxe.ExpectColumnValuesToBeBetween(column="pieces", min_value=1)
        return {
            "records": {"sales": [gxe.ExpectColumnValuesToNotBeNull(column="item")], "deliveries": [positive]},
            "changes": {"rules": [gxe.ExpectColumnValuesToBeBetween(column="rate", max_value=5)]},
        }

    shop.pipeline = replace(shop.pipeline, gate=gate)
    shop.send(shop.sales, Sale("a", 5, NOON))
    shop.send(shop.rules, Rule("a", 5))
    one = shop.checkpoint()
    assert sorted(e.frame for e in one.sealed.verdict.expectations) == ["changes.rules", "records.sales"]
    shop.send(shop.deliveries, Delivery(1, 0, NOON))
    with pytest.raises(GateFailedError, match=r"records\.deliveries"):
        shop.checkpoint()


def test_a_gate_with_a_list_for_several_sources_cannot_judge(shop: Shop) -> None:
    shop.pipeline = replace(shop.pipeline, gate=lambda: {"records": [1]})
    shop.send(shop.sales, Sale("a", 5, NOON))
    with pytest.raises(GateFailedError, match=r"give a mapping by source \(sales, deliveries\)"):
        shop.checkpoint()


def _ms(hour: int) -> int:
    return int(NOON.replace(hour=hour).timestamp() * 1000)
