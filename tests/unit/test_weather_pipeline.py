"""The weather demo's pipeline in memory, over three wet days of the real data, compared with DuckDB at every cut."""

import ast
import json
import re
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from devstack.demo.flights_data import FlightRecord, read_flights
from devstack.demo.topic_loader import partition_of
from devstack.weather import weather_oracle
from devstack.weather.weather_oracle import KEYS, WeatherOracle, by_key
from devstack.weather.weather_records import ENGINES, REFERENCES, read_weather
from pipelines.weather import Engine, weather
from tidemark import KafkaSource, Pipeline, formats
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.schema.registry_schemas import Schemas, SchemaText
from tidemark.testing import CRASH, Barrier, Record, Replayed, Restore, replay

YEAR, BEGIN, *CUTS = (datetime(2013, 1, day, 5, tzinfo=UTC) for day in (1, 11, 12, 13, 14))
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
PARTITIONS = 4
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def oracle() -> WeatherOracle:
    return WeatherOracle(since=BEGIN)


@pytest.fixture(scope="module")
def declared() -> Pipeline:
    """The pipeline, whose formats know the schemas that a registry would give."""
    schemas = Schemas({n: SchemaText(type="AVRO", text=json.dumps(t.schema)) for n, t in enumerate(REFERENCES, 1)})
    bound = formats.Avro().bind_schemas(schemas)
    observed, *references = weather.broadcast
    of_registry = [replace(found, source=_with(found.source, bound)) for found in references]
    return replace(weather, broadcast=[observed, *of_registry])


def _with(source: object, bound: formats.Avro) -> KafkaSource:
    assert isinstance(source, KafkaSource) and source.format == bound
    return replace(source, format=bound)


def records_of(source: str, records: list[FlightRecord], partitions: int = 1) -> Iterator[Record]:
    """Records of the year's first instant, and from the first cut to an hour after the last one."""
    for found in records:
        at = EPOCH + timedelta(milliseconds=found.timestamp_ms)
        if at == YEAR or BEGIN <= at < CUTS[-1] + timedelta(hours=1):
            place = partition_of(found, partitions)
            yield Record(value=found.value, key=found.key, partition=place, timestamp=at, source=source)


@pytest.fixture(scope="module")
def done(declared: Pipeline) -> Replayed:
    """Three checkpoints, one of them after a crash, a restore to the first, and the other two again in one."""
    sent = [
        *records_of("planes", REFERENCES[0].read(1)),
        *records_of("airlines", REFERENCES[1].read(2)),
        *records_of("observed", read_weather()),
        *records_of("records", read_flights(), PARTITIONS),
    ]
    first, second, third = (Barrier(until=cut) for cut in CUTS)
    script: list[Any] = [sent, first, CRASH.at("runs.airports", "after"), second, third, Restore(to="chk-1"), third]
    return replay(declared, script, partitions=PARTITIONS)


def test_the_oracle_uses_no_code_of_ours() -> None:
    tree = ast.parse(Path(weather_oracle.__file__).read_text())
    names = [a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names]
    names += [n.module or "." for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
    assert not [name for name in names if name.startswith((".", "tidemark", "pipelines", "devstack"))]


def test_the_enum_of_the_record_has_the_symbols_of_the_schema() -> None:
    assert {e.value for e in Engine} == set(ENGINES.values())


@pytest.mark.parametrize("table", sorted(KEYS))
def test_every_row_agrees_at_every_cut_after_a_crash_and_a_restore(
    done: Replayed, oracle: WeatherOracle, table: str
) -> None:
    assert done.crashes == 1
    for checkpoint, cut in zip(done.checkpoints, (*CUTS, CUTS[-1]), strict=True):
        assert oracle.expected(table, cut), "or this compares nothing"
        assert by_key(table, rows_of(done, table, checkpoint)) == by_key(table, oracle.expected(table, cut))


def test_what_the_conditions_leave_out_is_counted_as_filtered(done: Replayed, oracle: WeatherOracle) -> None:
    before = dict.fromkeys(oracle.filtered(CUTS[0]), 0)
    for checkpoint, cut in zip(done.checkpoints[:3], CUTS, strict=True):
        expected = oracle.filtered(cut)
        found = {uid: done.counts(uid, checkpoint).filtered for uid in expected}
        assert found == {uid: expected[uid] - before[uid] for uid in expected}
        before = expected
        assert not [letter for uid in checkpoint.plan.schemas for letter in done.dead_letters(uid, checkpoint)]


def rows_of(done: Replayed, table: str, checkpoint: Checkpoint) -> list[dict[str, Any]]:
    if table == "cancellations":
        rows = [dict(row) for row in done.emitted("departures.cancelled", checkpoint)]
    else:
        rows = list(done.rows(table, checkpoint).values())
    return [{name: value for name, value in row.items() if not name.startswith("_")} for row in rows]


def test_the_fold_on_the_page_is_that_of_the_pipeline() -> None:
    page = (ROOT / "docs/how-to/join-weather-to-flights.md").read_text()
    (block,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert f"{textwrap.indent(block.rstrip(), ' ' * 8)},\n" in (ROOT / "include/pipelines/weather.py").read_text()


def test_the_numbers_of_the_page_are_those_of_the_files() -> None:
    page, year = (ROOT / "docs/how-to/join-weather-to-flights.md").read_text(), WeatherOracle()
    after = datetime(2014, 1, 2, tzinfo=UTC)
    (totals,) = year.expected("totals", after)
    filtered = year.filtered(after)["airports"]
    assert f"{filtered:,} of {totals['flights'] - totals['cancelled']:,} departures have no" in page
    by_sky = {sky: [r for r in year.expected("airports", after) if r["sky"] == sky] for sky in ("rain or snow", "dry")}
    wet, dry = (sum(r["minutes_late"] for r in rows) / sum(r["departures"] for r in rows) for rows in by_sky.values())
    assert f"in rain or snow was {wet:.0f} minutes late on average, one in dry weather {dry:.0f}." in page
