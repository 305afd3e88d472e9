"""A real registry goes down while a client or Spark is killed around each step that touches schemas: nothing is lost.

Every test sends values by a schema that is new, hits one attempt, repeats it with the registry away, and then with the
registry back. The expected state is computed here, from all values that were ever sent. The registry takes long to
start, so it goes away by a closed door in front of it; only the last test kills it.
"""

import io
import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Thread
from typing import Any

import fastavro
import psutil
import pytest

from tests.faults.test_sweep import restart
from tests.support.cli import Answer, Command
from tests.support.kafka import Sent, Topics
from tests.support.prerequisites import missing
from tests.support.processes import PATIENCE, Child, Zygote
from tests.support.schema_registry import API, RegistryProcess, needs_registry, running_registry
from tests.support.spark_cluster import QUICK_JAVA
from tidemark.kafka import schema_registry
from tidemark.operations import reads
from tidemark.settings import Settings

pytestmark = [needs_registry(), pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]

DECLARATION = """
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
    notes: list[str] = state.distinct("note")


orders = Pipeline(
    name="orders",
    source=KafkaSource("$topic", Order, format=formats.Avro()),
    operators=[Fold("customers", key_by="customer", state=Customer)],
    max_dead_letters=1.0,
)
"""
STORED = ("schemas.store:after", "read:after")
STEPS = ("plan:after", "schemas.ask:before", "schemas.ask:after", *STORED)
AWAY = "the schema registry 'default' is unavailable"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands in this process wait twice for a short time, in place of five times."""
    monkeypatch.setattr(schema_registry, "PAUSES", (0.05, 0.1))


class Door:
    """Passes connections on to a server while it is open; while it is closed, nothing listens at its port."""

    def __init__(self, behind: int) -> None:
        self.behind, self.port = behind, 0
        self._listener: socket.socket | None = None

    def open(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self.port = self._listener.getsockname()[1]
        Thread(target=self._serve, args=(self._listener,), daemon=True).start()

    def close(self) -> None:
        if self._listener is not None:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None

    def _serve(self, listener: socket.socket) -> None:
        with suppress(OSError):  # closed
            while True:
                near, _ = listener.accept()
                far = socket.create_connection(("127.0.0.1", self.behind), timeout=30)
                for ends in ((near, far), (far, near)):
                    Thread(target=_copy, args=ends, daemon=True).start()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):  # the other direction has closed both
        while data := source.recv(1 << 16):
            target.sendall(data)
    for end in (source, target):
        end.close()


@dataclass
class KilledOrders:
    """A topic, its registry, the command line in this process, and the same in processes that are killed."""

    topics: Topics
    tidemark: Command
    registry: RegistryProcess
    door: Door
    zygote: Zygote
    schemas: list[dict[str, Any]] = field(default_factory=list)
    sent: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.topic = self.topics.make(partitions=2)
        self.tidemark.declare(DECLARATION, file="orders.py", topic=self.topic)

    def send(self) -> None:
        """Sends values by the schema before, and by a new one with its fields in another order."""
        number = len(self.schemas)
        fields: list[Any] = [
            {"name": "customer", "type": "string"},
            {"name": "amount", "type": ["int", "long"][number % 2]},
            {"name": "note", "type": ["null", "string"], "default": None},
        ]
        turned = fields[number % 3 :] + fields[: number % 3]
        self.schemas.append({"type": "record", "name": "Order", "doc": str(number), "fields": turned})
        assert self.registry.register("orders-value", self.schemas[-1]) == len(self.schemas)
        values = []
        for n in range(12):
            id = max(1, number + n % 2)
            made = {"customer": "abc"[n % 3], "amount": number * 100 + n, "note": None if n % 4 else f"{number}"}
            body = io.BytesIO()
            fastavro.schemaless_writer(body, fastavro.parse_schema(self.schemas[id - 1]), made)
            values.append(Sent(b"\0" + id.to_bytes(4) + body.getvalue(), partition=n % 2))
            self.sent.append(made)
        self.topics.produce(self.topic, values)

    @property
    def variables(self) -> dict[str, str]:
        return {"TIDEMARK_SCHEMA_REGISTRY": f"http://127.0.0.1:{self.door.port}{API}"}

    def run(self) -> Answer:
        return self.tidemark("run", "orders", **self.variables)

    def started(self, crash_at: str) -> Child:
        """Starts a run in another process, which kills or stops itself."""
        faults = {"TIDEMARK_TEST_FAULTS": "1", "TIDEMARK_CRASH_AT": crash_at}
        return self.zygote.start(["run", "orders"], self.tidemark.environment(**self.variables, **faults))

    def stopped_at(self, step: str) -> Child:
        """A run that has stopped itself, with everything that it holds."""
        client, deadline = self.started(f"{step}:1:stop"), time.monotonic() + PATIENCE
        while psutil.Process(client.pid).status() != psutil.STATUS_STOPPED:
            assert client.poll() is None, f"{step} was not reached: {client.wait()}"
            assert time.monotonic() < deadline, f"{step} was not reached in time"
            time.sleep(0.05)
        return client

    def check(self) -> None:
        """Compares the state with all values that were sent; each was read once, and none is a dead letter."""
        rows = reads.read_state(self.tidemark.context, "orders", "customers").to_pylist()
        found = {row["customer"]: (row["orders"], row["amount"], row["notes"]) for row in rows}
        wanted = {}
        for name in "abc":
            its = [made for made in self.sent if made["customer"] == name]
            notes = sorted({made["note"] for made in its if made["note"] is not None})
            wanted[name] = (len(its), sum(made["amount"] for made in its), notes)
        assert found == wanted
        chain = reads.list_checkpoints(self.tidemark.context, "orders")
        assert sum(c.sealed.facts.records for c in chain) == len(self.sent)
        assert all(ack.dead_lettered == 0 for c in chain for ack in c.sealed.acks)
        assert all(not c.sealed.facts.unknown_schemas for c in chain)


@pytest.fixture(scope="module")
def orders(
    topics: Topics, broker: str, spark_server: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KilledOrders]:
    """One checkpoint, and a timeline that grows from test to test."""
    home = tmp_path_factory.mktemp("orders")
    with running_registry(home) as registry, Zygote(tmp_path_factory.mktemp("commands")) as zygote:
        door = Door(registry.port)
        door.open()
        made = KilledOrders(topics, Command(home, broker, spark_server), registry, door, zygote)
        made.send()
        made.run().ok()
        made.check()
        yield made
        door.close()


@pytest.mark.parametrize("step", STEPS)
def test_a_killed_client_is_repaired_when_the_registry_is_back(orders: KilledOrders, step: str) -> None:
    orders.send()
    before = len(reads.list_checkpoints(orders.tidemark.context, "orders"))
    killed = orders.started(step).wait()
    assert killed.returncode == -signal.SIGKILL, f"{step} was not reached: {killed.stderr}"
    orders.door.close()
    if step in STORED:
        orders.run().ok()
    else:
        for _ in range(2):
            orders.run().failed(1, AWAY, "no record was lost")
        assert len(reads.list_checkpoints(orders.tidemark.context, "orders")) == before
    orders.door.open()
    orders.run().ok()
    orders.check()


@pytest.mark.parametrize("step", ["attempt:after", "schemas.ask:after"])
def test_a_registry_that_dies_during_an_attempt_is_needed_until_it_has_answered(
    orders: KilledOrders, step: str
) -> None:
    orders.send()
    client = orders.stopped_at(step)
    try:
        orders.door.close()
        os.kill(client.pid, signal.SIGCONT)
        done = client.wait()
    finally:
        client.kill()
    if step == "schemas.ask:after":
        assert done.returncode == 0, done.stderr
    else:
        assert done.returncode == 1 and AWAY in done.stderr, done.stderr
    orders.door.open()
    orders.run().ok()
    orders.check()


def test_a_killed_spark_needs_no_registry_for_schemas_that_are_stored(
    orders: KilledOrders, spark_stack: Settings
) -> None:
    if orders.tidemark.spark != spark_stack.spark_address:
        missing("a Spark of its own: TIDEMARK_TEST_SPARK names a server that is not ours to kill")
    orders.send()
    client = orders.stopped_at("schemas.store:after")
    try:
        orders.registry.stop()
        restart(spark_stack, QUICK_JAVA)
        os.kill(client.pid, signal.SIGCONT)
        done = client.wait()
    finally:
        client.kill()
    assert done.returncode == 1, done.stderr
    orders.run().ok()
    orders.check()
    newest = reads.get_checkpoint(orders.tidemark.context, "orders")
    assert newest.sealed.attempt == 2
    replayed = orders.tidemark("checkpoint", "replay", "orders", newest.plan.name, "--json", **orders.variables)
    assert all(state["equal"] for state in replayed.ok().json), json.dumps(replayed.json)
    orders.tidemark("verify", "orders").ok()
