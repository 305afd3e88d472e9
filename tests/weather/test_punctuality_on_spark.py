"""The pipeline of the weather demo with windows, timers and a join, through Kafka and Spark, against DuckDB."""

import shlex
from datetime import UTC, datetime
from pathlib import Path

import pytest

from devstack.demo.flights_data import read_flights
from devstack.demo.topic_loader import TopicLoader
from devstack.weather.punctuality_story import PIPELINE, PunctualityChecker
from devstack.weather.weather_records import read_weather
from tests.support.cli import Command
from tests.support.kafka import Topics
from tidemark.operations import reads

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
PAGE = (Path(__file__).parents[2] / "docs/how-to/join-weather-to-flights.md").read_text()
DECLARATION = Path(__file__).parents[2] / "include/pipelines/punctuality.py"
CUTS = [datetime(2013, 1, 9, 5, tzinfo=UTC), datetime(2013, 1, 14, 5, tzinfo=UTC)]
PARTITIONS = {"flights": 4, "weather": 1}


@pytest.fixture
def tidemark(topics: Topics, broker: str, spark_server: str, tmp_path: Path) -> Command:
    """The command line; the topics hold January."""
    text = DECLARATION.read_text()
    for name, records in {"flights": read_flights(), "weather": read_weather()}.items():
        topic = topics.make(partitions=PARTITIONS[name])
        assert text.count(f'KafkaSource("{name}"') == 1
        text = text.replace(f'KafkaSource("{name}"', f'KafkaSource("{topic}"')
        early = [record for record in records if record.timestamp_ms < CUTS[-1].timestamp() * 1000]
        TopicLoader(broker, topic, partitions=PARTITIONS[name]).load(early)
    command = Command(tmp_path, broker, spark_server)
    command.declare(text, file="punctuality.py")
    return command


def test_every_row_agrees_also_after_a_restore(tidemark: Command) -> None:
    checker = PunctualityChecker(context=tidemark.context, say=print)
    for cut in CUTS:
        tidemark("run", PIPELINE, "--until", cut.isoformat()).ok()
        assert checker.check(reads.get_checkpoint(tidemark.context, PIPELINE), cut) == []
    named = [shlex.split(line)[1:] for line in PAGE.splitlines() if line.startswith("tidemark ") and PIPELINE in line]
    answers = [tidemark(*command).ok().out for command in named]
    assert len(answers) == 3 and all(answers)
    tidemark("restore", PIPELINE, "--checkpoint", "chk-1", "--execute").ok()
    tidemark("run", PIPELINE, "--until", CUTS[-1].isoformat()).ok()
    found = reads.get_checkpoint(tidemark.context, PIPELINE)
    assert found.plan.replays == (2,), "a restore that keeps sinks repeats the cut"
    assert checker.check(found, CUTS[-1]) == []
