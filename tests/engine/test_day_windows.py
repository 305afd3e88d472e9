"""Windows of whole days in a time zone on Spark: bounds as in Python, and sales over both changes of a clock."""

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from pyspark.sql import SparkSession

from tests.support.local_days import SIZES, ZONES, instants
from tests.support.spark import SparkPipeline, TwinPipeline
from tidemark import DeltaSink, Fold, KafkaSource, Pipeline, Tumbling, state
from tidemark.model.schema.event_windows import to_ms
from tidemark.testing import Record

SEED = int(os.environ.get("TIDEMARK_TEST_SEED", random.randrange(2**32)))
BERLIN = ZoneInfo("Europe/Berlin")


def test_bounds_on_spark_are_those_of_python(spark: SparkSession) -> None:
    print(f"TIDEMARK_TEST_SEED={SEED}")
    chance = random.Random(SEED)
    for zone in ZONES:
        years = [datetime(year, 7, 1, tzinfo=UTC) for year in (1, 1969, 1999, 2055, 9990)]
        given = [None, *(to_ms(at) for at in (*instants(chance, zone, 300), *years))]
        windows = [Tumbling(timedelta(days=size), timezone=zone).stored for size in SIZES]
        times = [f"{window.time_sql('at')} AS t{n}" for n, window in enumerate(windows)]
        bounds = [f"array({', '.join(window.span_sql(f't{n}'))})" for n, window in enumerate(windows)]
        frame = spark.createDataFrame([(at,) for at in given], "at BIGINT").selectExpr("*", *times)
        for at, *found in frame.selectExpr("at", *bounds).collect():
            expected = [[None, None] if at is None else [*window.span(at)] for window in windows]
            assert found == expected, (zone, at)


@dataclass(frozen=True)
class DaySale:
    """One record."""

    shop: str
    cents: int
    at: datetime


class DaySales(state.Keyed):
    """Per shop and day."""

    n: int = state.count()
    cents: int | None = state.sum("cents")


def days_in_berlin() -> Pipeline:
    fold = Fold(
        "days", key_by="shop", state=DaySales, window=Tumbling("1d", timezone="Europe/Berlin"), sink=DeltaSink("days")
    )
    source = KafkaSource("sales", DaySale, event_time="at")
    return Pipeline(name="shops", source=source, operators=[fold], max_dead_letters=1.0)


def every_hour(year: int, month: int, day: int) -> Iterator[datetime]:
    """Each hour of three days around a date, of which the second begins with it in Berlin."""
    first = datetime(year, month, day - 1, tzinfo=BERLIN).astimezone(UTC)
    return (first + n * timedelta(hours=1) for n in range(72))


def test_days_of_23_and_25_hours_close_at_local_midnight(spark: SparkSession, tmp_path: Path) -> None:
    line, twin = SparkPipeline(days_in_berlin(), spark=spark, root=tmp_path), TwinPipeline(days_in_berlin())
    hours = [*every_hour(2024, 3, 31), *every_hour(2024, 10, 27)]
    closed: dict[datetime, int] = {}
    for n in range(0, len(hours), 24):
        sales = [Record(value=DaySale("a", 1, at)) for at in hours[n : n + 24]]
        # Records whose day is over are late by the same bounds.
        late = [Record(value=DaySale("a", 1, hours[n - 48]))] if n >= 48 else []
        mine, its = line.checkpoint([*sales, *late]), twin.checkpoint([*sales, *late])
        assert line.emitted("days", mine) == twin.emitted("days", its)
        assert line.state("days", mine) == twin.state("days", its)
        assert line.letters("days", mine) == twin.letters("days", its)
        closed |= {row["window_start"]: row["n"] for row in line.emitted("days", mine)}
    first = [datetime(2024, 3, day, tzinfo=BERLIN) for day in (30, 31)]
    second = [datetime(2024, 10, day, tzinfo=BERLIN) for day in (26, 27)]
    assert {at: closed[at.astimezone(UTC)] for at in (*first, *second)} == dict(
        zip((*first, *second), (24, 23, 24, 25), strict=True)
    )
