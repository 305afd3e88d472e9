"""Cases of `KafkaSink`; `tests/contract/test_sender.py` has the real producer."""

import json

import pytest

from tests.unit.sinks.sink_cases import Arrived, SinkCase, SinkPipeline
from tidemark import KafkaSink
from tidemark.errors import UsageError
from tidemark.sinks.sink import Services


def arrived(line: SinkPipeline) -> Arrived:
    return [(m.id, json.loads(m.value)) for m in line.sender.arrived.get("out", [])]


CASES = [
    SinkCase(sink=KafkaSink("alerts", "out", key_by="who"), arrived=arrived),
    SinkCase(sink=KafkaSink("alerts", "out", guarantee="at_least_once"), arrived=arrived),
]


def test_without_kafka_nothing_is_sent() -> None:
    with pytest.raises(UsageError, match="this process cannot send to Kafka"):
        KafkaSink("alerts", "out").write([], "p/t1/chk-1", Services())


def test_a_fork_keeps_what_attempts_would_send() -> None:
    assert KafkaSink("alerts", "out", guarantee="at_least_once").on_fork() == KafkaSink("alerts", "out")
