"""What a Kafka sink sends, to a real broker: after the manifest, in order, with an id, and again only what was not."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.support.disk import DiskPipeline
from tests.support.kafka import Topics
from tidemark import KafkaSink, KafkaSource, Pipeline, Process, state
from tidemark.context import Context
from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.plans.sink_inputs import Undelivered
from tidemark.errors import BrokerError
from tidemark.formats import Json
from tidemark.model.core.types import record_type
from tidemark.operations import reads, sinks
from tidemark.settings import load_settings

DAY = datetime(2020, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Tick:
    """One record."""

    who: str
    n: int


@dataclass(frozen=True)
class Alert:
    """What is sent."""

    who: str
    at: datetime
    n: int | None


class Last(state.Keyed):
    """How often the key was seen."""

    times: int = state.value(0)


def alert(who: str, ticks: Iterator[Tick], last: Last) -> Iterator[Alert]:
    """Two records for each one."""
    for tick in ticks:
        last.times += 1
        yield Alert(who, DAY + timedelta(days=tick.n), last.times)
        yield Alert(who, DAY, None)


@dataclass
class DeliveringPipeline:
    """A pipeline whose checkpoints are made without Spark, and the real delivery."""

    line: DiskPipeline
    context: Context
    broker: str
    topic: str

    def checkpoint(self, *ticks: tuple[str, int]) -> None:
        """One checkpoint over records of one partition."""
        self.line.send([(0, json.dumps({"who": w, "n": n}).encode(), 0) for w, n in ticks])
        self.line.checkpoint()

    def arrived(self) -> list[tuple[bytes | None, dict[str, Any], str]]:
        """Key, decoded value and id of everything in the topic."""
        consumer = Consumer({"bootstrap.servers": self.broker, "group.id": "test", "enable.auto.commit": False})
        consumer.assign([TopicPartition(self.topic, 0, 0)])
        _, end = consumer.get_watermark_offsets(TopicPartition(self.topic, 0), timeout=10)
        found: list[tuple[bytes | None, dict[str, Any], str]] = []
        while len(found) < end and (message := consumer.poll(10)) is not None:
            headers = dict(message.headers() or [])
            decoded = Json().decode_one(message.value(), record_type(Alert))
            id_ = headers["tidemark-id"]
            assert isinstance(id_, bytes)
            found.append((message.key(), decoded, id_.decode()))
        consumer.close()
        return found


@pytest.fixture
def delivering(broker: str, topics: Topics, tmp_path: Path) -> DeliveringPipeline:
    """A pipeline over a log in memory, with a sink in a real topic."""
    topic = topics.make(partitions=1)
    process = Process(
        "alerts",
        key_by="who",
        state=Last,
        function=alert,
        emits=Alert,
        sink=KafkaSink("alerts", topic, key_by="who"),
    )
    pipeline = Pipeline(name="ticks", source=KafkaSource("ticks", Tick), operators=[process])
    settings = load_settings(home=str(tmp_path / "home"), warehouse=str(tmp_path / "w"), kafka_bootstrap=broker)
    line = DiskPipeline(tmp_path / "w", pipeline, "ticks", sender=Context(settings).sender)
    line.log.create(topic)
    return DeliveringPipeline(line, Context(settings), broker, topic)


@pytest.fixture
def sending(delivering: DeliveringPipeline) -> DeliveringPipeline:
    """The same, but attempts send themselves."""
    (process,) = delivering.line.pipeline.operators
    assert isinstance(process, Process)
    sink = KafkaSink("alerts", delivering.topic, key_by="who", guarantee="at_least_once")
    delivering.line.pipeline = replace(delivering.line.pipeline, operators=[replace(process, sink=sink)])
    return delivering


def test_emitted_records_arrive_once_in_order_with_their_ids(delivering: DeliveringPipeline) -> None:
    delivering.checkpoint(("a", 1), ("b", 2))
    assert sinks.deliver(delivering.context, "ticks") == 4
    assert sinks.deliver(delivering.context, "ticks") == 0
    arrived = delivering.arrived()
    assert [(key, value["n"], id_) for key, value, id_ in arrived] == [
        (b"a", 1, "ticks/t1/chk-1/alerts/ticks-0-0-0"),
        (b"a", None, "ticks/t1/chk-1/alerts/ticks-0-0-1"),
        (b"b", 1, "ticks/t1/chk-1/alerts/ticks-0-1-0"),
        (b"b", None, "ticks/t1/chk-1/alerts/ticks-0-1-1"),
    ]
    assert arrived[2][1]["at"] == DAY + timedelta(days=2)


def test_what_a_crash_left_behind_is_sent_first_and_in_order(delivering: DeliveringPipeline) -> None:
    delivering.checkpoint(("a", 1))
    delivering.checkpoint()
    delivering.checkpoint(("a", 2))
    assert sinks.deliver(delivering.context, "ticks") == 4
    delivering.checkpoint(("a", 3))
    assert sinks.deliver(delivering.context, "ticks") == 2
    assert [value["n"] for _, value, _ in delivering.arrived() if value["n"]] == [1, 2, 3]


def test_what_a_crash_left_behind_is_sent_behind_the_next_checkpoint_even_of_an_undeclared_sink(
    delivering: DeliveringPipeline,
) -> None:
    delivering.checkpoint(("a", 1))
    delivering.checkpoint(("a", 2))
    newest = reads.get_checkpoint(delivering.context, "ticks")
    assert sinks.deliver(delivering.context, "ticks", newest) == 4
    delivering.checkpoint(("a", 3))
    (process,) = delivering.line.pipeline.operators
    assert isinstance(process, Process)
    delivering.line.pipeline = replace(delivering.line.pipeline, operators=[replace(process, sink=None)])
    delivering.checkpoint(("a", 4))
    newest = reads.get_checkpoint(delivering.context, "ticks")
    assert newest.plan.sinks == {}
    assert sinks.deliver(delivering.context, "ticks", newest) == 2


def test_behind_a_checkpoint_without_an_outbox_nothing_is_looked_for(
    delivering: DeliveringPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    (process,) = delivering.line.pipeline.operators
    assert isinstance(process, Process)
    delivering.line.pipeline = replace(delivering.line.pipeline, operators=[replace(process, sink=None)])
    delivering.checkpoint(("a", 1))
    newest = reads.get_checkpoint(delivering.context, "ticks")
    looked = list[str]()

    def look(coordinator: CheckpointCoordinator) -> list[Undelivered]:
        looked.append(coordinator.name)
        return []

    monkeypatch.setattr("tidemark.operations.sinks.list_undelivered", look)
    assert sinks.deliver(delivering.context, "ticks", newest) == 0
    assert looked == []
    assert sinks.deliver(delivering.context, "ticks") == 0
    assert looked == ["ticks"]


def test_a_crash_between_send_and_record_sends_again_with_the_same_ids(
    delivering: DeliveringPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    delivering.checkpoint(("a", 1))
    with monkeypatch.context() as patch:
        patch.setattr("tidemark.operations.sinks.record_delivery", _killed)
        with pytest.raises(KeyboardInterrupt):
            sinks.deliver(delivering.context, "ticks")
    assert sinks.deliver(delivering.context, "ticks") == 2
    ids = [id_ for *_, id_ in delivering.arrived()]
    assert len(ids) == 4 and len(set(ids)) == 2


def test_a_failure_to_send_leaves_the_checkpoint_and_is_repaired_later(
    delivering: DeliveringPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemark.kafka.producer.STALL", 1.0)
    delivering.checkpoint(("a", 1))
    nobody = replace(
        delivering, context=Context(delivering.context.settings.model_copy(update={"kafka_bootstrap": "127.0.0.1:1"}))
    )
    assert sinks.deliver(nobody.context, "ticks") == 0
    monkeypatch.undo()
    assert reads.get_checkpoint(delivering.context, "ticks").id == 1
    assert sinks.deliver(delivering.context, "ticks") == 2


def test_an_attempt_sends_the_same_records_before_it_is_sealed(sending: DeliveringPipeline) -> None:
    sending.checkpoint(("a", 1), ("b", 2))
    assert sinks.deliver(sending.context, "ticks") == 0, "nothing is left for afterwards"
    arrived = sending.arrived()
    assert [(key, value["n"], id_) for key, value, id_ in arrived] == [
        (b"a", 1, "ticks/t1/chk-1/alerts/ticks-0-0-0"),
        (b"a", None, "ticks/t1/chk-1/alerts/ticks-0-0-1"),
        (b"b", 1, "ticks/t1/chk-1/alerts/ticks-0-1-0"),
        (b"b", None, "ticks/t1/chk-1/alerts/ticks-0-1-1"),
    ]
    assert arrived[2][1]["at"] == DAY + timedelta(days=2)
    assert not list((sending.line.root / "ticks").glob("outbox/*"))


def test_a_broker_that_is_down_fails_an_attempt_that_sends_and_the_state_stays(
    sending: DeliveringPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    sending.checkpoint(("a", 1))
    real = sending.line.sender
    with monkeypatch.context() as patch:
        patch.setattr("tidemark.kafka.producer.STALL", 1.0)
        nobody = sending.context.settings.model_copy(update={"kafka_bootstrap": "127.0.0.1:1"})
        sending.line.sender = Context(nobody).sender
        with pytest.raises(BrokerError, match=f"sending to topic {sending.topic}") as caught:
            sending.checkpoint(("a", 2))
        assert "not sealed" in caught.value.safe and "same ids" in caught.value.next
    assert reads.get_checkpoint(sending.context, "ticks").id == 1
    sending.line.sender = real
    sending.line.checkpoint()
    assert [value["n"] for _, value, _ in sending.arrived() if value["n"]] == [1, 2]


def _killed(*_: object) -> None:
    raise KeyboardInterrupt
