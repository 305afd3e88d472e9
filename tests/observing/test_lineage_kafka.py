"""Events of OpenLineage in a topic of a real broker; and a broker that is not there."""

import json
import time
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.support.openlineage import complaints
from tests.support.trips import TripsPipeline
from tidemark.errors import UsageError
from tidemark.operations import checkpoints, reads
from tidemark.ports import PlanRequest
from tidemark.settings import load_settings


def read(broker: str, topic: str, wanted: int) -> list[tuple[bytes, dict[str, Any]]]:
    """Keys and events of a topic."""
    consumer = Consumer({"bootstrap.servers": broker, "group.id": "test", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found, until = list[tuple[bytes, dict[str, Any]]](), time.monotonic() + 20
    while len(found) < wanted and time.monotonic() < until:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            key, value = message.key(), message.value()
            assert key is not None and value is not None
            found.append((key, json.loads(value)))
    consumer.close()
    return found


def test_events_are_records_of_the_topic_keyed_by_the_job(world: TripsPipeline, broker: str, topic: str) -> None:
    world.drive("a")
    checkpoints.run_once(world.context(openlineage=f"kafka://{broker}/{topic}"), "trips", PlanRequest(origin="test"))
    found = read(broker, topic, 2)
    assert [(key, event["eventType"]) for key, event in found] == [
        (b"run:tidemark/trips", "START"),
        (b"run:tidemark/trips", "COMPLETE"),
    ]
    assert [c for _, event in found for c in complaints(event)] == []


def test_a_broker_that_is_not_there_costs_one_wait(world: TripsPipeline, logged: list[dict[str, Any]]) -> None:
    world.drive("a")
    began = time.monotonic()
    checkpoints.run_once(world.context(openlineage="kafka://127.0.0.1:1/lineage"), "trips", PlanRequest(origin="test"))
    assert time.monotonic() - began < 8
    assert len(reads.list_checkpoints(world.context(), "trips")) == 1
    assert [e["what"] for e in logged if e["event"] == "observer_given_up"] == ["lineage"]


@pytest.mark.parametrize("address", ["kafka://host/topic", "kafka://host:1", "kafka://host:1/a b", "kafka://u@h:1/t"])
def test_an_address_that_does_not_fit_is_refused(address: str) -> None:
    with pytest.raises(UsageError, match="TIDEMARK_OPENLINEAGE"):
        load_settings(openlineage=address)
