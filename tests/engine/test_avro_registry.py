"""Avro through a real registry, Kafka and Spark: ids are found while reading, and the warehouse keeps the schemas."""

import io
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pytest

from tests.support.cli import Command
from tests.support.kafka import Sent, Topics
from tests.support.schema_registry import RegistryProcess, needs_registry, running_registry
from tests.unit.formats.test_debezium import KEY_SCHEMA, VALUE_SCHEMA
from tidemark.engine.read import batch_reader
from tidemark.engine.read.batch_reader import schema_ids
from tidemark.kafka import schema_registry

pytestmark = [needs_registry(), pytest.mark.slow]

ORDERS = """
from dataclasses import dataclass

from tidemark import Fold, KafkaSource, Pipeline, formats, state


@dataclass(frozen=True)
class Order:
    customer: str
    amount: int
    note: str | None = None


class Customer(state.Keyed):
    orders: int = state.count()
    amount: int | None = state.sum("amount")
    last: str | None = state.latest("note")


orders = Pipeline(
    name="orders",
    source=KafkaSource("$topic", Order, format=formats.Avro($options)),
    operators=[Fold("customers", key_by="customer", state=Customer)$more],
    max_dead_letters=1.0,
)
"""


def record(*found: tuple[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "Order", "fields": [{"name": n, "type": of, **more(of)} for n, of in found]}


def more(of: Any) -> dict[str, Any]:
    return {"default": None} if isinstance(of, list) else {}


V1 = record(("customer", "string"), ("amount", "int"))
V2 = record(("amount", "long"), ("note", ["null", "string"]), ("customer", "string"))
V3 = record(("note", ["null", "string"]), ("amount", "long"), ("unused", ["null", "double"]), ("customer", "string"))


def framed(id: int, schema: Any, value: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return b"\0" + id.to_bytes(4) + stream.getvalue()


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryProcess]:
    with running_registry(tmp_path_factory.mktemp("registry")) as process:
        yield process


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two short waits in place of five."""
    monkeypatch.setattr(schema_registry, "PAUSES", (0.05, 0.1))


class Orders:
    """A topic, its registry and the command line."""

    def __init__(self, topics: Topics, tidemark: Command, registry: RegistryProcess) -> None:
        self.topics, self.tidemark, self.registry = topics, tidemark, registry
        self.topic = topics.make(partitions=2)
        self.sent = 0
        self.declare()

    def declare(self, options: str = "", more: str = "") -> None:
        self.tidemark.declare(ORDERS, file="orders.py", topic=self.topic, options=options, more=more)

    def send(self, *values: bytes | None) -> None:
        self.topics.produce(self.topic, [Sent(value, partition=(self.sent + n) % 2) for n, value in enumerate(values)])
        self.sent += len(values)

    def run(self, *arguments: str, **more: str) -> Any:
        return self.tidemark("run", "orders", *arguments, TIDEMARK_SCHEMA_REGISTRY=self.registry.address, **more)

    def replayed(self, checkpoint: str) -> bool:
        """The result of a replay that reaches no registry."""
        answer = self.tidemark("checkpoint", "replay", "orders", checkpoint, "--json", TIDEMARK_SCHEMA_REGISTRY=NOBODY)
        return all(state["equal"] for state in answer.ok().json)

    def state(self) -> dict[str, tuple[int, int | None, str | None]]:
        rows = self.tidemark("state", "show", "orders", "customers", "--json").ok().json
        return {row["customer"]: (row["orders"], row["amount"], row["last"]) for row in rows}

    def letters(self) -> dict[str, int]:
        found = self.tidemark("dead-letters", "list", "orders", "--json").ok().json["letters"]
        return {row["reason"]: row["letters"] for row in found}


NOBODY = "http://127.0.0.1:9/apis/ccompat/v7"


@pytest.fixture
def orders(topics: Topics, broker: str, spark_server: str, tmp_path: Path, registry: RegistryProcess) -> Orders:
    return Orders(topics, Command(tmp_path, broker, spark_server), registry)


def test_three_writers_are_read_and_the_warehouse_keeps_their_schemas(orders: Orders) -> None:
    ids = [orders.registry.register(f"{orders.topic}-value", schema) for schema in (V1, V2, V3)]
    values = [
        (ids[0], V1, {"customer": "ann", "amount": 1}),
        (ids[1], V2, {"customer": "ann", "amount": 10, "note": "two"}),
        (ids[1], V2, {"customer": "bob", "amount": 20, "note": None}),
    ]
    orders.send(*(framed(*value) for value in values))
    orders.run().ok()
    orders.send(framed(ids[2], V3, {"customer": "bob", "amount": 5, "note": "three", "unused": 1.5}))
    orders.run().ok()
    assert orders.state() == {"ann": (2, 11, "two"), "bob": (2, 25, "three")}
    kept = orders.tidemark.warehouse / "orders/schemas"
    stored = [json.loads(path.read_text())["body"] for path in sorted(kept.glob("default/*.json"))]
    assert [body["id"] for body in stored] == sorted(ids)
    texts = [json.loads((kept / f"{body['text']}.json").read_text()) for body in stored]
    assert texts == [V1, V2, V3]
    assert orders.replayed("chk-1") and orders.replayed("chk-2")


def test_a_registry_that_is_away_is_weather(orders: Orders) -> None:
    id = orders.registry.register(f"{orders.topic}-value", V1)
    orders.send(framed(id, V1, {"customer": "ann", "amount": 1}))
    failed = orders.tidemark("run", "orders", TIDEMARK_SCHEMA_REGISTRY=NOBODY)
    failed.failed(1, "the schema registry 'default' is unavailable")
    orders.run().ok()
    # Known ids need no registry.
    orders.send(framed(id, V1, {"customer": "ann", "amount": 2}))
    orders.tidemark("run", "orders", TIDEMARK_SCHEMA_REGISTRY=NOBODY).ok()
    assert orders.state() == {"ann": (2, 3, None)} and orders.letters() == {}


def test_without_an_address_the_error_names_the_variable(orders: Orders) -> None:
    orders.send(framed(1, V1, {"customer": "ann", "amount": 1}))
    orders.tidemark("run", "orders").failed(2, "TIDEMARK_SCHEMA_REGISTRY is not set")


def test_bad_input_is_kept_with_its_reason(orders: Orders) -> None:
    id = orders.registry.register(f"{orders.topic}-value", V2)
    other = orders.registry.register(f"{orders.topic}-other", record(("customer", "string"), ("sum", "int")))
    good = framed(id, V2, {"customer": "ann", "amount": 10, "note": "x"})
    bad = {
        good[:4]: "malformed_avro: no frame",
        b"\x01" + good[1:]: "malformed_avro: no frame",
        good[:5] + b"\x14\x06" + good[7:]: "malformed_avro",  # no such branch of the union
        good[:5] + b"\xff\xff": "malformed_avro",  # a number that does not end
        good[:-1]: "malformed_avro",
        framed(other, record(("customer", "string"), ("sum", "int")), {"customer": "a", "sum": 1}): (
            "schema_mismatch: amount"
        ),
        framed(987_654, V1, {"customer": "a", "amount": 1}): "unknown_schema: 987654",
    }
    orders.send(good, None, *bad)
    orders.run().ok()
    expected: dict[str, int] = {"null_value": 1}
    for reason in bad.values():
        expected[reason] = expected.get(reason, 0) + 1
    assert orders.letters() == expected
    assert orders.state() == {"ann": (1, 10, "x")}
    (manifest,) = (orders.tidemark.warehouse / "orders/timelines/t1").glob("*.json")
    assert json.loads(manifest.read_text())["body"]["sealed"]["facts"]["unknown_schemas"] == {"default": [987_654]}
    assert orders.replayed("chk-1")


def test_an_unknown_id_is_asked_for_again_later_and_a_replay_believes_the_manifest(
    orders: Orders, registry: RegistryProcess
) -> None:
    soon = registry.register("guess", {"type": "string"}) + 1
    value = framed(soon, V1, {"customer": "ann", "amount": 7})
    orders.send(value)
    orders.run().ok()
    assert orders.letters() == {f"unknown_schema: {soon}": 1} and orders.state() == {}
    assert registry.register(f"{orders.topic}-value", V1 | {"doc": orders.topic}) == soon
    orders.send(value)
    orders.run().ok()
    assert orders.state() == {"ann": (1, 7, None)}
    assert orders.replayed("chk-1"), "the id that is known now stays unknown there"
    orders.tidemark("dead-letters", "redrive", "orders", "customers", "--execute").ok()
    orders.run().ok()
    assert orders.state() == {"ann": (2, 14, None)}


@pytest.mark.parametrize("kept", [False, True], ids=["in passing", "kept"])
def test_ids_are_read_only_if_a_value_names_another_schema_than_the_parents(
    orders: Orders, monkeypatch: pytest.MonkeyPatch, *, kept: bool
) -> None:
    """The only fold writes while the batch is read; beside a second one the batch is cached."""
    orders.declare(more=', Fold("again", key_by="customer", state=Customer)' if kept else "")
    asked = list[list[int]]()

    def counted(raw: Any, *, keys: bool) -> list[int]:
        asked.append(schema_ids(raw, keys=keys))
        return asked[-1]

    monkeypatch.setattr(batch_reader, "schema_ids", counted)
    ids = [orders.registry.register(f"{orders.topic}-value", schema | {"doc": orders.topic}) for schema in (V1, V2)]
    one = framed(ids[0], V1, {"customer": "ann", "amount": 1})
    two = framed(ids[1], V2, {"customer": "ann", "amount": 10, "note": "two"})
    unknown = framed(987_654, V1, {"customer": "bob", "amount": 1})
    for values, query in (
        ([one], [ids[0]]),
        ([one, one], None),
        ([one, two], sorted(ids)),
        ([two, b"{}"], None),
        ([one, unknown], [ids[0], 987_654]),
    ):
        asked.clear()
        orders.send(*values)
        orders.run().ok()
        assert asked == ([] if query is None else [query])
    assert orders.state() == {"ann": (7, 25, None)}
    assert orders.letters().keys() == {"malformed_avro: no frame", "unknown_schema: 987654"}
    runs = {path.parent.name for path in orders.tidemark.warehouse.glob("orders/state/customers/*/runs/*/*.parquet")}
    assert runs == {f"{n}.1" for n in range(1, 6)}
    assert orders.replayed("chk-3") and orders.replayed("chk-5")
    orders.tidemark("verify", "orders").ok()


def test_another_registry_under_the_same_name_is_noticed(orders: Orders, tmp_path: Path) -> None:
    id = orders.registry.register(f"{orders.topic}-value", V1)
    orders.send(framed(id, V1, {"customer": "ann", "amount": 1}))
    orders.run().ok()
    (tmp_path / "other").mkdir()
    with running_registry(tmp_path / "other") as other:
        for n in range(id + 1):
            last = other.register(f"s{n}", V2 | {"doc": str(n)})
        orders.send(framed(last, V2, {"customer": "bob", "amount": 2, "note": None}))
        failed = orders.tidemark("run", "orders", TIDEMARK_SCHEMA_REGISTRY=other.address)
        failed.failed(1, "schema changed", f"under id {id}", "no record was decoded by the other schema")
        assert orders.state() == {"ann": (1, 1, None)}
        orders.declare('registry="other"')
        orders.tidemark("run", "orders", TIDEMARK_SCHEMA_REGISTRY=f"other={other.address}").ok()
    assert orders.state()["bob"] == (1, 2, None)
    shutil.rmtree(tmp_path / "other")


ITEMS = """
from dataclasses import dataclass

from tidemark import Fold, KafkaSource, Pipeline, formats, state


@dataclass(frozen=True)
class Item:
    id: int
    region: str
    cents: int


class Copy(state.Keyed):
    cents: int = state.latest("cents")


orders = Pipeline(
    name="orders",
    source=KafkaSource("$topic", Item, format=formats.Debezium(inner=formats.Avro())),
    operators=[Fold("customers", key_by=("id", "region"), state=Copy, deletes=True)],
)
"""


def test_message_keys_of_changes_have_schemas_too(orders: Orders) -> None:
    orders.tidemark.declare(ITEMS, file="orders.py", topic=orders.topic)
    of_value = orders.registry.register(f"{orders.topic}-value", VALUE_SCHEMA)
    of_key = orders.registry.register(f"{orders.topic}-key", KEY_SCHEMA)
    sent = []
    for cents, region in ((4, "a"), (5, "b"), (6, "a")):
        row = {"id": 1, "region": region, "name": None, "cents": cents}
        event = {"before": None, "after": row, "source": {"version": "3", "ts_ms": 1}, "op": "u", "ts_ms": 2}
        key = framed(of_key, KEY_SCHEMA, {"id": 1, "region": region})
        sent.append(Sent(framed(of_value, VALUE_SCHEMA, event), key=key, partition=0))
    sent.append(Sent(None, key=framed(of_key, KEY_SCHEMA, {"id": 1, "region": "b"}), partition=0))
    orders.topics.produce(orders.topic, sent)
    orders.run().ok()
    rows = orders.tidemark("state", "show", "orders", "customers", "--json").ok().json
    assert [(row["id"], row["region"], row["cents"]) for row in rows] == [(1, "a", 6)] and orders.letters() == {}
    assert orders.replayed("chk-1")
