"""The poller of `KafkaLag` over a real broker and a real warehouse; whether a DAG run is active is said by the test."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.kafka import Sent, Topics
from tidemark.context import Context, open_context
from tidemark.coordinator.checkpoints.idle import completed_idle
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.operations import checkpoints, stop, timelines
from tidemark.ports import PlanRequest

pytestmark = [pytest.mark.airflow, pytest.mark.kafka, pytest.mark.filterwarnings("default")]
POLL_MS = 100
PATIENCE = 30.0
QUIET = 1.0
"""Ten looks of the poller."""
NAME = "buses"
DECLARED = """
from dataclasses import dataclass

from tidemark import Fold, KafkaSource, Pipeline, state

@dataclass(frozen=True)
class Trip:
    bus: str

class Bus(state.Keyed):
    trips: int = state.count()

buses = Pipeline(
    name="buses", source=KafkaSource({topics!r}, Trip), operators=[Fold("buses", key_by="bus", state=Bus)]
)
"""


class Place:
    """A topic, a folder of pipelines and a warehouse, as the environment of tasks and of the triggerer names them."""

    def __init__(self, folder: Path, topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
        self.file, self.topics, self.monkeypatch = folder / "lag_pipelines" / "buses.py", topics, monkeypatch
        self.topic = topics.make(partitions=2)
        self.file.parent.mkdir()
        self.declare(self.topic)
        for name, value in {"HOME": folder, "PIPELINES": self.file.parent, "SPARK": "sc://nowhere:1"}.items():
            monkeypatch.setenv(f"TIDEMARK_{name}", str(value))
        self.connect(topics.bootstrap)

    def connect(self, bootstrap: str) -> None:
        self.monkeypatch.setenv("TIDEMARK_KAFKA_BOOTSTRAP", bootstrap)

    def declare(self, *topics: str) -> None:
        self.file.write_text(DECLARED.replace("{topics!r}", repr(topics)))
        sys.modules.pop("lag_pipelines.buses", None)

    def send(self, count: int, timestamp_ms: int = 0, topic: str = "") -> None:
        value = json.dumps({"bus": "a"}).encode()
        records = [
            Sent(value, partition=n % 2, timestamp_ms=timestamp_ms or time.time_ns() // 1_000_000) for n in range(count)
        ]
        self.topics.produce(topic or self.topic, records)

    def open(self) -> Context:
        return open_context()

    def complete(self) -> int:
        """Completes a checkpoint over all that is there, without an engine: its state stays empty."""
        opened = self.open()
        planned = checkpoints.plan(opened, NAME, PlanRequest(origin="test"))
        assert planned.slot is not None
        checkpoint = completed_idle(opened.coordinator(NAME), checkpoints.get_plan(opened, NAME, planned.slot))
        assert checkpoint is not None
        return checkpoint.id


@pytest.fixture
def place(airflow_home: Path, tmp_path: Path, topics: Topics, monkeypatch: pytest.MonkeyPatch) -> Place:
    return Place(tmp_path, topics, monkeypatch)


class Stored:
    """What Airflow's store of an asset holds, as JSON; the real one needs a supervisor, and is tested end to end."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    async def aget(self, key: str) -> Any:
        return json.loads(self.values[key]) if key in self.values else None

    async def aset(self, key: str, value: Any) -> None:
        self.values[key] = json.dumps(value)


class Poller:
    """A running poller, its events, and the longest time for which its event loop did nothing else."""

    def __init__(self, stored: Stored | None = None, *, trigger_id: int = 1, **rule: Any) -> None:
        from tidemark.airflow.kafka_lag import KafkaLagTrigger, checksum_inputs

        self.active, self.answers = 0, list[int]()
        poller = self

        class Trigger(KafkaLagTrigger):
            def count_runs(self) -> int:
                return poller.answers.pop(0) if poller.answers else poller.active

        inputs = checksum_inputs(open_context().pipeline(NAME))
        self.trigger = Trigger(pipeline=NAME, dag_id=NAME, inputs=inputs, poll_ms=POLL_MS, **rule)
        self.trigger.trigger_id = trigger_id
        self.trigger.asset_state_store = stored  # type: ignore[assignment]
        self.events: list[Any] = []
        self.longest_stall = 0.0
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "Poller":
        self._tasks = [asyncio.create_task(self._collect()), asyncio.create_task(self._tick())]
        return self

    async def __aexit__(self, *error: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _collect(self) -> None:
        async for event in self.trigger.run():
            self.events.append(event.payload)

    async def _tick(self) -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.02)
            self.longest_stall = max(self.longest_stall, time.monotonic() - before)

    async def sees(self, events: int) -> None:
        """Waits for so many events, and that there are no more."""
        deadline = time.monotonic() + PATIENCE
        while len(self.events) < events:
            assert not self._tasks[0].done(), self._tasks[0].exception()
            assert time.monotonic() < deadline, f"{len(self.events)} events"
            await asyncio.sleep(0.05)
        await asyncio.sleep(QUIET)
        assert len(self.events) == events


def play(scenario: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await scenario()

    asyncio.run(main())


def test_a_run_starts_when_enough_records_wait_and_again_when_enough_wait_after_it(place: Place) -> None:
    async def scenario() -> None:
        async with Poller(min_records=10) as poller:
            await asyncio.to_thread(place.send, 9)
            await poller.sees(0)
            await asyncio.to_thread(place.send, 1)
            await poller.sees(1)
            await asyncio.to_thread(place.send, 50)
            await poller.sees(1)
            await asyncio.to_thread(place.complete)
            await asyncio.to_thread(place.send, 9)
            await poller.sees(1)
            await asyncio.to_thread(place.send, 3)
            await poller.sees(2)
        assert poller.events == [{"pipeline": NAME, "unread": 10}, {"pipeline": NAME, "unread": 12}]

    play(scenario)


def test_one_record_starts_a_run_when_it_has_waited_by_its_timestamp_or_by_the_clock(place: Place) -> None:
    async def scenario() -> None:
        async with Poller(max_wait_ms=3_600_000) as poller:
            await asyncio.to_thread(place.send, 1, timestamp_ms=1_700_000_000_000)
            await poller.sees(1)
            await asyncio.to_thread(place.complete)
            await asyncio.to_thread(place.send, 1)
            await poller.sees(1)
            await asyncio.to_thread(place.complete)
        async with Poller(max_wait_ms=2000) as poller:
            ahead = time.time_ns() // 1_000_000 + 1_800_000
            await asyncio.to_thread(place.send, 1, timestamp_ms=ahead)  # a producer with a wrong clock
            await poller.sees(1)

    play(scenario)


def test_nothing_starts_while_a_run_is_active_and_what_it_left_does_afterwards(place: Place) -> None:
    async def scenario() -> None:
        async with Poller(min_records=5) as poller:
            poller.active = 1
            await asyncio.to_thread(place.send, 20)
            await poller.sees(0)
            await asyncio.to_thread(place.complete)
            await asyncio.to_thread(place.send, 6)
            await poller.sees(0)
            poller.active = 0
            await poller.sees(1)
        assert poller.events[0]["unread"] == 6

    play(scenario)


def test_a_run_that_begins_while_the_lag_is_measured_is_not_doubled_and_counts_as_no_event(place: Place) -> None:
    async def scenario() -> None:
        async with Poller(min_records=5) as poller:
            await asyncio.to_thread(place.send, 5)
            await poller.sees(1)
            poller.active = 1
            await asyncio.to_thread(place.complete)
            await asyncio.to_thread(place.send, 5)
            before = time.monotonic()
            poller.answers, poller.active = [1, 0, 1, 1, 0, 1], 0
            await poller.sees(2)
            assert time.monotonic() - before < 20, "no event was sent that would have to be repeated"
            assert poller.answers == []

    play(scenario)


def test_a_restore_makes_records_unread_again(place: Place) -> None:
    def restore(checkpoint: int) -> None:
        timelines.restore(place.open(), NAME, RestoreRequest(checkpoint=checkpoint, request="back"))

    async def scenario() -> None:
        await asyncio.to_thread(place.send, 1)
        first = await asyncio.to_thread(place.complete)
        await asyncio.to_thread(place.send, 9)
        await asyncio.to_thread(place.complete)
        async with Poller(min_records=9) as poller:
            await poller.sees(0)
            await asyncio.to_thread(restore, first)
            await poller.sees(1)

    play(scenario)


def test_a_stopped_pipeline_starts_nothing(place: Place) -> None:
    async def scenario() -> None:
        await asyncio.to_thread(place.send, 5)
        await asyncio.to_thread(stop.stop, place.open(), NAME, "disk swap")
        async with Poller(min_records=1) as poller:
            await poller.sees(0)
            await asyncio.to_thread(stop.resume, place.open(), NAME, "done")
            await poller.sees(1)

    play(scenario)


def test_a_restart_of_the_triggerer_repeats_no_event_and_a_new_poller_decides_for_itself(place: Place) -> None:
    async def scenario() -> None:
        stored = Stored()
        await asyncio.to_thread(place.send, 5)
        async with Poller(stored, min_records=5) as poller:
            await poller.sees(1)
        async with Poller(stored, min_records=5) as restarted:
            await restarted.sees(0)
            await asyncio.to_thread(place.complete)
            await asyncio.to_thread(place.send, 5)
            await restarted.sees(1)
        async with Poller(stored, trigger_id=2, min_records=5) as unpaused:
            await unpaused.sees(1)

    play(scenario)


def test_a_broker_that_is_away_ends_no_poller_and_blocks_no_other_trigger(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        await asyncio.to_thread(place.send, 5)
        place.connect("127.0.0.1:9")
        async with Poller(min_records=5) as poller:
            deadline = time.monotonic() + PATIENCE
            while "the lag is not known" not in caplog.text:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.05)
            assert poller.events == []
            place.connect(place.topics.bootstrap)
            await poller.sees(1)
        assert poller.longest_stall < 1.0, "it waited outside of the event loop"

    play(scenario)
    assert "did not" in caplog.text and "127.0.0.1:9" in caplog.text


def test_a_changed_declaration_is_read_again_by_the_poller_that_it_makes(place: Place) -> None:
    async def scenario() -> None:
        async with Poller(min_records=5) as poller:
            await poller.sees(0)
            other = await asyncio.to_thread(place.topics.make, partitions=2)
            await asyncio.to_thread(place.send, 5, topic=other)
            await poller.sees(0)
        old = sys.modules["lag_pipelines.buses"]
        place.declare(place.topic, other)
        async with Poller(min_records=5) as changed:
            sys.modules["lag_pipelines.buses"] = old  # as in a triggerer that is not started again
            await changed.sees(1)

    play(scenario)


PROBE = """
import sys
import airflow.triggers.base
import tidemark.airflow.kafka_lag, tidemark.airflow.checkpoint_tasks, tidemark.operations.observability
heavy = {"pyspark", "pandas", "deltalake", "duckdb", "pyarrow", "boto3", "great_expectations"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
"""


def test_the_triggerer_loads_neither_spark_nor_another_engine(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[2]
    env = os.environ | {"AIRFLOW_HOME": str(tmp_path), "PYTHONPATH": str(root / "include")}
    done = subprocess.run(
        [sys.executable, "-c", PROBE], env=env, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
