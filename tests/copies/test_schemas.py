"""Schemas of a registry belong to a warehouse: kills, verify, retention, export and import know them.

Store, tables and the order of steps are real; engine, log and registry are twins. `tests/faults` has the real ones.
"""

import io
import json
import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fastavro
import pytest

from tests.support.cli import Command
from tests.support.crashes import CrashAt, Killed
from tests.support.disk import DiskPipeline
from tests.support.disk_context import commands_over
from tests.support.row_changes import pipeline
from tests.unit.formats.test_debezium import AVRO, avro_event, avro_key
from tidemark import formats
from tidemark.coordinator.checkpoints.job import ignore_step
from tidemark.coordinator.records import schema_book
from tidemark.coordinator.records.schema_book import StoredSchemas
from tidemark.coordinator.retention.sweep import Sweeper
from tidemark.declare.retention import Retention
from tidemark.errors import CorruptObjectError, RegistryUnavailableError
from tidemark.model.checkpoint.manifest import BatchFacts, Checkpoint
from tidemark.model.core import canonical
from tidemark.model.core.offsets import TopicPartition
from tidemark.model.retention.export_manifest import NAME, Export
from tidemark.model.schema.registry_schemas import SchemaText
from tidemark.operations import reads
from tidemark.tables.local_table_files import LocalTableFiles
from tidemark.testing.twin.memory import MemoryLog

NOWHERE = ("127.0.0.1:1", "sc://127.0.0.1:1")
DECLARATION = """
from dataclasses import dataclass

from tidemark import Fold, KafkaSource, Pipeline, formats, state


@dataclass(frozen=True)
class Order:
    customer: str
    amount: int


class Customer(state.Keyed):
    orders: int = state.count()
    amount: int | None = state.sum("amount")


$name = Pipeline(
    name="$name",
    source=KafkaSource("orders", Order, format=formats.Avro()),
    operators=[Fold("customers", key_by="customer", state=Customer)],
    max_dead_letters=1.0,
)
"""
NAMED = '{"type": "record", "name": "Order", "fields": [%s]}'
CUSTOMER = '{"name": "customer", "type": "string"}'
V1 = NAMED % f'{CUSTOMER}, {{"name": "amount", "type": "int"}}'
V2 = NAMED % f'{{"name": "amount", "type": "long"}}, {CUSTOMER}'
UNKNOWN = 99


@dataclass
class MemoryRegistry:
    """The twin of `HttpRegistry`: it knows some schemas, and is there or not."""

    texts: dict[int, str] = field(default_factory=lambda: {1: V1, 2: V2})
    is_up: bool = True
    asked: list[int] = field(default_factory=list)

    def ask(self, registry: str, ids: Collection[int], again: Collection[int] = ()) -> Mapping[int, SchemaText]:
        if not self.is_up:
            raise RegistryUnavailableError(f"the schema registry {registry!r} is unavailable", next="wait.")
        self.asked += ids
        return {id: SchemaText(type="AVRO", text=self.texts[id]) for id in (*ids, *again) if id in self.texts}


class Orders:
    """A pipeline of orders in Avro, whose log other pipelines may read."""

    def __init__(self, folder: Path, name: str = "orders", before: "DiskPipeline | None" = None) -> None:
        self.tidemark, self.name, self.registry = Command(folder, *NOWHERE), name, MemoryRegistry()
        self.tidemark.declare(DECLARATION, file=f"{name}.py", name=name)
        log, declared = MemoryLog() if before is None else before.log, self.tidemark.context.pipeline(name)
        self.line = DiskPipeline(self.tidemark.warehouse, declared, "orders", registry=self.registry, log=log)

    def send(self, id: int, customer: str, amount: int) -> None:
        body = io.BytesIO()
        schema = fastavro.parse_schema(json.loads(self.registry.texts.get(id, V1)))
        fastavro.schemaless_writer(body, schema, {"customer": customer, "amount": amount})
        self.line.send([(amount % 2, b"\0" + id.to_bytes(4) + body.getvalue(), 0)])

    def grow(self) -> "Orders":
        """Three checkpoints: by schema 1, by both and an id that is unknown, and without a record."""
        self.send(1, "ann", 1)
        self.line.checkpoint()
        self.send(1, "ann", 2)
        self.send(2, "bob", 3)
        self.send(UNKNOWN, "cid", 4)
        self.line.checkpoint()
        self.line.checkpoint()
        return self

    def state(self) -> dict[str, tuple[int, int]]:
        rows = reads.read_state(self.tidemark.context, self.name, "customers").to_pylist()
        return {row["customer"]: (row["orders"], row["amount"]) for row in rows}

    @property
    def stored(self) -> StoredSchemas:
        return StoredSchemas(self.line.coordinator.objects)

    @property
    def schemas(self) -> dict[str, bytes]:
        """The objects of schemas, by path."""
        folder = self.tidemark.warehouse / self.name / "schemas"
        return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.json")}

    def path(self, key: str) -> Path:
        return self.tidemark.warehouse / self.name / "schemas" / key

    def text_path(self, id: int) -> Path:
        (record,) = (json.loads(self.path(f"default/{id:010d}.json").read_bytes()),)
        return self.path(f"{record['body']['text']}.json")

    def damages(self, *arguments: str) -> dict[str, list[str]]:
        """What `verify` finds: restore points by path below `schemas/`."""
        found = self.tidemark("verify", self.name, *arguments, "--json").json["damaged"]
        return {damage["file"].partition("/schemas/")[2]: damage["breaks"] for damage in found}


@pytest.fixture
def orders(tmp_path: Path) -> Orders:
    return Orders(tmp_path / "orders")


def test_a_manifest_lists_the_schemas_of_its_records(orders: Orders) -> None:
    orders.grow()
    facts = [c.sealed.facts for c in reads.list_checkpoints(orders.tidemark.context, "orders")]
    assert [f.schemas for f in reversed(facts)] == [{"default": (1,)}, {"default": (1, 2)}, {}]
    assert [f.unknown_schemas for f in reversed(facts)] == [{}, {"default": (UNKNOWN,)}, {}]
    assert orders.state() == {"ann": (2, 3), "bob": (1, 3)}
    assert orders.damages() == {}


POINTS = ["read:before", "schemas.ask:before", "schemas.ask:after", "schemas.store:before", "schemas.store:after"]
"""The crash points up to the first decoded record. Between plan and attempt, no schema is touched."""


@pytest.mark.parametrize("returns", [True, False], ids=["back", "away"])
@pytest.mark.parametrize("nth", range(1, len(POINTS) + 4))
def test_a_kill_with_the_registry_away_at_the_repetition_loses_nothing(
    orders: Orders, nth: int, *, returns: bool
) -> None:
    orders.send(1, "ann", 1)
    orders.line.checkpoint()
    orders.send(2, "bob", 2)
    orders.send(1, "ann", 5)
    seen = list[str]()
    crash = CrashAt(nth)

    def listen(step: str, moment: str) -> None:
        seen.append(f"{step}:{moment}")
        crash(step, moment)

    orders.line.crash = listen
    with pytest.raises(Killed):
        orders.line.checkpoint()
    assert seen[: len(POINTS)] == POINTS[:nth]
    orders.line.crash, orders.registry.is_up = ignore_step, returns
    is_stored = "schemas.store:after" in seen
    if returns or is_stored:
        orders.line.checkpoint()
    else:
        for _ in range(2):
            with pytest.raises(RegistryUnavailableError):
                orders.line.checkpoint()
        assert orders.state() == {"ann": (1, 1)}
        orders.registry.is_up = True
        orders.line.checkpoint()
    assert orders.state() == {"ann": (2, 6), "bob": (1, 2)}
    made = reads.list_checkpoints(orders.tidemark.context, "orders")
    assert [c.sealed.facts.records for c in made] == [2, 1]
    assert orders.registry.asked.count(2) == 1 + (not is_stored and "schemas.ask:after" in seen)
    assert orders.damages() == {}


def test_texts_that_a_killed_attempt_left_are_used_by_the_next_one(orders: Orders) -> None:
    text = orders.line.coordinator.objects.put_text(lambda name: f"schemas/{name}.json", V1)
    assert orders.stored.all() == {}
    orders.grow()
    assert orders.path(f"{text}.json") == orders.text_path(1)


def test_verify_reports_schemas_that_checkpoints_need(orders: Orders, tmp_path: Path) -> None:
    orders.grow()
    later = ["chk-2"]
    both = ["chk-1", "chk-2"]
    record = "default/0000000002.json"
    kept = orders.path(record).read_bytes()
    orders.path(record).unlink()
    assert orders.damages() == {record: later}
    assert orders.damages("--checkpoint", "2") == {record: later}
    assert orders.damages("--checkpoint", "1") == {}
    orders.path(record).write_bytes(kept.replace(b"AVRO", b"JSON"))
    assert orders.damages() == {record: later}
    orders.path(record).write_bytes(kept)
    text = orders.text_path(1)
    whole = text.read_bytes()
    for damage in (whole[:-1], whole.replace(b"int", b"INT"), b""):
        text.write_bytes(damage)
        assert orders.damages() == {text.name: both}
    text.unlink()
    assert orders.damages() == {text.name: both}
    refused = orders.tidemark("export", "orders", "--checkpoint", "chk-2", "--to", str(tmp_path / "x"))
    refused.failed(6, f"orders/schemas/{text.name}", "breaks chk-1, chk-2")


def test_verify_reports_a_schema_that_no_checkpoint_needs_yet(orders: Orders) -> None:
    orders.grow()
    orders.stored.put("default", 3, SchemaText(type="AVRO", text='"string"', references=(("a", '"int"'),)))
    orders.text_path(3).write_text('"bytes"')
    assert orders.damages() == {orders.text_path(3).name: []}


def test_what_is_gone_is_stored_again_if_the_registry_still_has_it(orders: Orders) -> None:
    orders.grow()
    whole = orders.schemas
    text = orders.text_path(1)
    for lost in (text, orders.path("default/0000000001.json")):
        lost.unlink()
        orders.send(1, "ann", 1)
        orders.registry.is_up = False
        with pytest.raises(RegistryUnavailableError):
            orders.line.checkpoint()
        orders.registry.is_up = True
        orders.line.checkpoint()
        assert orders.schemas == whole
    # The registry writes the same schema in another way, so it is not the text by which records were decoded.
    text.unlink()
    orders.registry.texts[1] = V1.replace(": ", ":")
    orders.send(1, "ann", 1)
    with pytest.raises(CorruptObjectError, match="it is gone"):
        orders.line.checkpoint()


def test_a_replay_needs_the_schemas_of_its_checkpoint_and_no_others(orders: Orders) -> None:
    orders.grow()
    first, second, third = (c.sealed.facts for c in reversed(reads.list_checkpoints(orders.tidemark.context, "orders")))
    orders.path("default/0000000002.json").unlink()
    assert orders.stored.bind(formats.Avro(), first).schemas.texts.keys() == {1}
    with pytest.raises(CorruptObjectError, match="0000000002.json: it is gone"):
        orders.stored.bind(formats.Avro(), second)
    assert orders.stored.bind(formats.Avro(), third).schemas.texts.keys() == {1}
    older = BatchFacts(records=1, watermark_ms=None, bytes=1, unknown_schemas={"default": (1,)})
    assert orders.stored.bind(formats.Avro(), older).schemas.texts == {}, "a manifest of before lists none"


def test_a_checkpoint_takes_over_the_schemas_of_its_parent(orders: Orders, monkeypatch: pytest.MonkeyPatch) -> None:
    def listed(*ids: int) -> tuple[int, ...]:
        """Completes a checkpoint over records by these schemas, and returns the ids in its manifest."""
        for id in ids:
            orders.send(id, "ann", 1)
        return orders.line.checkpoint().sealed.facts.schemas.get("default", ())

    assert listed(2) == (2,)
    assert listed(1) == (1, 2)
    assert listed(2) == (1, 2), "no record names 1"
    assert listed(UNKNOWN, 1) == (1, 2)
    orders.registry.texts[UNKNOWN] = V1
    assert listed(UNKNOWN) == (1, 2, UNKNOWN)
    text = orders.text_path(2)
    kept = text.read_bytes()
    text.unlink()
    assert listed(UNKNOWN) == (UNKNOWN,), "a schema that is lost and not needed is not taken over"
    text.write_bytes(kept)
    assert listed(2) == (2, UNKNOWN)
    monkeypatch.setattr(schema_book, "RECALLED", 1)
    assert listed(2) == (2,), "a list that is too long begins again"
    assert listed() == () and listed(1) == (1,)
    assert orders.state() == {"ann": (9, 9)} and orders.damages() == {}


def test_retention_deletes_no_schema(orders: Orders) -> None:
    orders.grow()
    whole, files = orders.schemas, LocalTableFiles(str(orders.tidemark.warehouse))
    for _ in range(2):
        rule = Retention.keep_last(1)
        swept = Sweeper(coordinator=orders.line.coordinator, files=files, rule=rule, grace_ms=0).sweep()
        orders.line.clock.advance(10_000)
        assert swept is not None
    left = orders.tidemark("verify", "orders", "--json").ok().json["restore_points"]
    assert left == ["chk-3", "timeline t1"]
    assert orders.schemas == whole and orders.damages() == {}
    orders.registry.is_up = False
    orders.send(1, "ann", 1)
    orders.line.checkpoint()
    assert orders.state() == {"ann": (3, 4), "bob": (1, 3)}


def test_an_import_needs_no_registry(orders: Orders, tmp_path: Path) -> None:
    orders.grow()
    orders.tidemark("export", "orders", "--checkpoint", "chk-1", "--to", str(tmp_path / "export")).ok()
    other = Orders(tmp_path / "other", "copied", before=orders.line)
    with commands_over(other.line):
        other.tidemark("import", str(tmp_path / "export"), "--as", "copied").ok()
        assert not (other.tidemark.warehouse / "copied" / "schemas").exists()
        other.tidemark("import", str(tmp_path / "export"), "--as", "copied", "--execute").ok()
    assert other.schemas == {key.replace("orders", "copied"): raw for key, raw in orders.schemas.items()}
    other.registry.texts = {}
    other.line.checkpoint()
    assert other.state() == orders.state(), "schema 2 came with the export, although chk-1 has no record of it"
    assert other.registry.asked == [UNKNOWN]
    assert newest(other).sealed.facts.schemas == {"default": (1, 2)}
    assert other.damages() == {}


def test_an_import_refuses_ids_of_another_registry(orders: Orders, tmp_path: Path) -> None:
    orders.grow()
    orders.tidemark("export", "orders", "--to", str(tmp_path / "export")).ok()
    other = Orders(tmp_path / "other", "copied", before=orders.line)
    other.stored.put("default", 2, SchemaText(type="AVRO", text=V1))
    before = other.schemas
    with commands_over(other.line):
        for more in ((), ("--execute",)):
            refused = other.tidemark("import", str(tmp_path / "export"), "--as", "copied", *more)
            refused.failed(1, "another schema under id 2 of the registry 'default'", "nothing was imported")
    assert other.schemas == before


def test_a_name_in_an_export_reaches_no_other_folder(orders: Orders, tmp_path: Path) -> None:
    orders.grow()
    orders.tidemark("export", "orders", "--to", str(tmp_path / "export")).ok()
    place = tmp_path / "export" / NAME
    made = Export.decode(place.read_bytes())
    assert [(s.registry, s.id, s.schema.text) for s in made.schemas] == [("default", 1, V1), ("default", 2, V2)]
    for name in ("../plans", "a/b", ""):
        evil = json.loads(place.read_bytes())
        evil["body"]["schemas"][0]["registry"] = name
        shutil.rmtree(tmp_path / "evil", ignore_errors=True)
        shutil.copytree(tmp_path / "export", tmp_path / "evil")
        (tmp_path / "evil" / NAME).write_bytes(_signed(evil))
        other = Orders(tmp_path / "other", "copied", before=orders.line)
        with commands_over(other.line):
            refused = other.tidemark("import", str(tmp_path / "evil"), "--as", "copied", "--execute")
        assert refused.code and not (other.tidemark.warehouse / "copied" / "schemas").exists(), refused.err


def _signed(made: dict[str, Any]) -> bytes:
    return canonical.encode("export", made["body"])


def newest(orders: Orders) -> Checkpoint:
    return reads.get_checkpoint(orders.tidemark.context, orders.name)


def test_schemas_of_the_message_keys_of_changes_are_learned_too(tmp_path: Path) -> None:
    registry = MemoryRegistry({id: found.text for id, found in AVRO.texts.items()})
    line = DiskPipeline(tmp_path, pipeline(inner=formats.Avro()), "shop.public.items", registry=registry)
    row = {"id": 1, "region": "a", "name": "x", "cents": 4}
    line.log.append(TopicPartition(line.topic, 0), avro_event("c", None, row), key=avro_key(1, "a"))
    acks = {ack.uid: ack.applied for ack in line.checkpoint().sealed.acks}
    assert acks["copy"] == acks["seen"] == acks["spent"] == 1 and sorted(registry.asked) == sorted(AVRO.texts)
