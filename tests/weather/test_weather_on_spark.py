"""The weather demo's pipeline over four months, through Kafka, Apicurio and Spark; DuckDB says what each row must be.

One attempt is killed, one restore goes back two checkpoints, and a replay reads Avro when the registry is gone.
"""

import shlex
import signal
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from devstack.demo.flights_data import FlightRecord, read_flights
from devstack.demo.topic_loader import TopicLoader
from devstack.weather.weather_checking import PIPELINE, WeatherChecker
from devstack.weather.weather_records import REFERENCES, read_weather
from tests.support.cli import Command
from tests.support.kafka import Topics
from tests.support.schema_registry import RegistryProcess, needs_registry, running_registry
from tidemark.operations import reads

pytestmark = [needs_registry(), pytest.mark.slow, pytest.mark.timeout(900)]
DECLARATION = Path(__file__).parents[2] / "include/pipelines/weather.py"
PAGE = (Path(__file__).parents[2] / "docs/how-to/join-weather-to-flights.md").read_text()
ERASE = (Path(__file__).parents[2] / "docs/how-to/erase.md").read_text()
CUTS = [datetime(2013, month, 1, 5, tzinfo=UTC) for month in (2, 3)] + [
    datetime(2013, month, 1, 4, tzinfo=UTC) for month in (4, 5)
]
"""New York's midnights; one month more is in the topics."""
AFTER_MS = int(datetime(2013, 6, 1, tzinfo=UTC).timestamp() * 1000)
PARTITIONS = {"flights": 4, "weather": 1, "planes-avro": 1, "airlines-avro": 1}
NOBODY = "http://127.0.0.1:9/apis/ccompat/v7"


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[RegistryProcess]:
    with running_registry(tmp_path) as process:
        yield process


@pytest.fixture
def tidemark(topics: Topics, broker: str, spark_server: str, tmp_path: Path, registry: RegistryProcess) -> Command:
    """The command line; the topics hold January to May."""
    names = {name: topics.make(partitions=count) for name, count in PARTITIONS.items()}
    text = DECLARATION.read_text()
    for name, topic in names.items():
        assert text.count(f'KafkaSource("{name}"') == 1
        text = text.replace(f'KafkaSource("{name}"', f'KafkaSource("{topic}"')
    found: dict[str, list[FlightRecord]] = {"flights": read_flights(), "weather": read_weather()}
    for reference in REFERENCES:
        found[reference.name] = reference.read(registry.register(f"{reference.name}-value", dict(reference.schema)))
    for name, records in found.items():
        early = [record for record in records if record.timestamp_ms < AFTER_MS]
        TopicLoader(broker, names[name], partitions=PARTITIONS[name]).load(early)
    command = Command(tmp_path, broker, spark_server)
    command.declare(text, file="weather.py")
    return command


def test_every_row_agrees(tidemark: Command, registry: RegistryProcess) -> None:
    checker = WeatherChecker(context=tidemark.context, say=print)
    here = {"TIDEMARK_SCHEMA_REGISTRY": registry.address}

    def agrees(cut: datetime) -> None:
        assert checker.check(reads.get_checkpoint(tidemark.context, PIPELINE), cut) == []

    def run(cut: datetime) -> None:
        tidemark("run", PIPELINE, "--until", cut.isoformat(), **here).ok()

    run(CUTS[0])
    agrees(CUTS[0])
    fault = {"TIDEMARK_CRASH_AT": "runs.airports:after", "TIDEMARK_TEST_FAULTS": "1"}
    killed = tidemark.process("run", PIPELINE, "--until", CUTS[1].isoformat(), **here, **fault)
    assert killed.code == -signal.SIGKILL, killed.err
    run(CUTS[1])
    agrees(CUTS[1])
    run(CUTS[2])
    agrees(CUTS[2])
    tidemark("restore", PIPELINE, "--checkpoint", "chk-1", "--execute").ok()
    registry.stop()
    here["TIDEMARK_SCHEMA_REGISTRY"] = NOBODY
    run(CUTS[3])
    agrees(CUTS[3])
    answer = tidemark("checkpoint", "replay", PIPELINE, "chk-1", "--json", **here).ok()
    assert all(state["equal"] for state in answer.json)
    answers = [tidemark(*command).ok().out for command in _commands(PAGE) if PIPELINE in command]
    assert len(answers) == 5 and all(answers)
    skies = [line.split()[0] for line in answers[0].splitlines()[1:]]
    assert "rain" in skies and skies[-1] == "dry", answers[0]
    _erases_rows_of_the_flat_map(tidemark)


def _commands(text: str) -> list[list[str]]:
    return [shlex.split(line)[1:] for line in text.splitlines() if line.startswith("tidemark ")]


def _erases_rows_of_the_flat_map(tidemark: Command) -> None:
    """Types what the page on erasure says of rows without a key."""

    def routes() -> list[tuple[str, str]]:
        rows = tidemark("sink", "show", PIPELINE, "cancellations", "--limit", "1000000", "--json").ok().json
        return [(row["origin"], row["destination"]) for row in rows]

    before, gone = routes(), ("EWR", "ORD")
    assert gone in before
    section = ERASE.split("## Rows of a FlatMap")[1].split("## ")[0]
    found = [tidemark(*command).ok().out for command in _commands(section)]
    assert len(found) == 2
    assert routes() == [route for route in before if route != gone]
