"""Closed windows in a real topic: each once, with an id of its window, over crashes and restores."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.support.disk import DiskPipeline
from tests.support.kafka import Topics
from tidemark import Fold, KafkaSink, KafkaSource, Pipeline, Tumbling, state
from tidemark.context import Context
from tidemark.coordinator.plans.restore_point import RestorePoint
from tidemark.coordinator.recovery.restore import Recovery
from tidemark.operations import sinks
from tidemark.settings import load_settings

DAY = datetime(2020, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Beat:
    """One record."""

    who: str
    at: datetime


class Beats(state.Keyed):
    """Per hour."""

    n: int = state.count()


@dataclass
class SendingHours:
    """A pipeline without Spark, with a sink in a real topic."""

    line: DiskPipeline
    context: Context
    broker: str
    topic: str

    def checkpoint(self, *beats: tuple[str, float]) -> None:
        """One checkpoint over beats at hours."""
        found = [{"who": who, "at": (DAY + timedelta(hours=hour)).isoformat()} for who, hour in beats]
        self.line.send([(0, json.dumps(beat).encode(), 0) for beat in found])
        self.line.checkpoint()

    def arrived(self) -> list[tuple[bytes | None, Any, str]]:
        """Key, value and id of everything in the topic."""
        consumer = Consumer({"bootstrap.servers": self.broker, "group.id": "test", "enable.auto.commit": False})
        consumer.assign([TopicPartition(self.topic, 0, 0)])
        _, end = consumer.get_watermark_offsets(TopicPartition(self.topic, 0), timeout=10)
        found: list[tuple[bytes | None, Any, str]] = []
        while len(found) < end and (message := consumer.poll(10)) is not None:
            id_ = dict(message.headers() or [])["tidemark-id"]
            value = message.value()
            assert isinstance(id_, bytes) and value is not None
            found.append((message.key(), json.loads(value), id_.decode()))
        consumer.close()
        return found


def hours(
    broker: str, topics: Topics, home: Path, guarantee: Literal["exactly_once_by_id", "at_least_once"]
) -> SendingHours:
    """Hours of beats."""
    topic = topics.make(partitions=1)
    sink = KafkaSink("hours", topic, key_by="who", guarantee=guarantee)
    fold = Fold("hours", key_by="who", state=Beats, window=Tumbling("1h"), sink=sink)
    pipeline = Pipeline(name="beats", source=KafkaSource("beats", Beat, event_time="at"), operators=[fold])
    settings = load_settings(home=str(home / "home"), warehouse=str(home / "w"), kafka_bootstrap=broker)
    line = DiskPipeline(home / "w", pipeline, "beats", sender=Context(settings).sender)
    line.log.create(topic)
    return SendingHours(line, Context(settings), broker, topic)


def test_each_closed_window_arrives_once_over_a_crash_and_a_restore(
    broker: str, topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = hours(broker, topics, tmp_path, "exactly_once_by_id")
    made.checkpoint(("a", 1.1), ("a", 1.2), ("b", 1.5))
    made.checkpoint(("a", 2.5))
    with monkeypatch.context() as patched:
        patched.setattr("tidemark.operations.sinks.record_delivery", _killed)
        with pytest.raises(KeyboardInterrupt):
            sinks.deliver(made.context, "beats")
    assert sinks.deliver(made.context, "beats") == 2
    again = made.arrived()
    assert len(again) == 4 and len({id_ for *_, id_ in again}) == 2, "sent again, with the same ids"
    first = {key: (value["n"], value["window_end"]) for key, value, _ in again}
    assert {key: n for key, (n, _) in first.items()} == {b"a": 2, b"b": 1}
    assert all(datetime.fromisoformat(end) == DAY + timedelta(hours=2) for _, end in first.values())
    end_ms = int((DAY + timedelta(hours=2)).timestamp() * 1000)
    assert all(id_.startswith(f"beats/t1/chk-2/hours/windows/hours-0-{end_ms}-") for *_, id_ in again)
    coordinator = made.line.coordinator
    begins = coordinator.checkpoint(1)
    Recovery(coordinator=coordinator, pipeline=made.line.pipeline).restore(RestorePoint(checkpoint=begins))
    made.checkpoint(("b", 3.5))
    made.checkpoint()
    assert sinks.deliver(made.context, "beats") == 1
    assert [(key, value["n"]) for key, value, _ in made.arrived()[4:]] == [(b"a", 1)]


def test_attempts_that_send_themselves_send_no_window_again_after_a_restore(
    broker: str, topics: Topics, tmp_path: Path
) -> None:
    made = hours(broker, topics, tmp_path, "at_least_once")
    made.checkpoint(("a", 1.1))
    made.checkpoint(("a", 2.5))
    coordinator = made.line.coordinator
    begins = coordinator.checkpoint(1)
    Recovery(coordinator=coordinator, pipeline=made.line.pipeline).restore(RestorePoint(checkpoint=begins))
    made.checkpoint(("a", 3.5))
    made.checkpoint()
    ends = [datetime.fromisoformat(value["window_end"]) for _, value, _ in made.arrived()]
    assert ends == [DAY + timedelta(hours=2), DAY + timedelta(hours=3)]


def _killed(*_: object) -> None:
    raise KeyboardInterrupt
