"""A batch that is large for its files: what its fold comes to, and how many tasks and files make it."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import uuid4

from tests.support.spark import SparkPipeline
from tidemark import Fold, KafkaSource, Pipeline, state
from tidemark.engine.write import parquet_writer
from tidemark.readers.checkpoint_reader import read_checkpoint
from tidemark.readers.state_hash import hash_of
from tidemark.storage.local_store import LocalStore

RECORDS, KEYS = 80_000, 30_000
FILE_BYTES = 160_000
"""Instead of 64 MiB: eight files for that many records of 16 bytes."""
FILES = 8


@dataclass(frozen=True)
class Trip:
    """A record."""

    tail: str
    miles: int
    at: datetime


class Totals(state.Keyed):
    """The totals kept per tail number."""

    trips: int = state.count()
    miles: int = state.sum("miles")
    last_at: datetime | None = state.max("at")


PIPELINE = Pipeline(
    name="wide",
    source=KafkaSource("trips", Trip, event_time="at"),
    operators=[Fold("totals", key_by="tail", state=Totals)],
)


@dataclass(frozen=True)
class Wide:
    """What one checkpoint took and came to.

    Attributes:
        tasks: number of tasks of each of its stages.
        file_rows: rows of each file of its run.
        sha256: hash of the state.
        totals: trips and miles by tail number.
    """

    tasks: list[int]
    file_rows: list[int]
    sha256: str
    totals: dict[str, tuple[int, int]]


def trips() -> Iterator[Trip]:
    """The records: no chance in them."""
    first = datetime(2020, 1, 1, tzinfo=UTC)
    for n in range(RECORDS):
        yield Trip(f"N{n * 7919 % KEYS}", n % 1000, first + timedelta(seconds=n))


def expected() -> dict[str, tuple[int, int]]:
    """The totals by a plain loop."""
    made: dict[str, tuple[int, int]] = {}
    for trip in trips():
        count, miles = made.get(trip.tail, (0, 0))
        made[trip.tail] = (count + 1, miles + trip.miles)
    return made


def folded_widely(spark: Any, root: Path, tasks: int) -> Wide:
    """Makes a checkpoint of all records on a driver of this process."""
    world = SparkPipeline(PIPELINE, spark=spark, root=root, parallelism=tasks)
    world.store, world.ids = LocalStore(root / PIPELINE.name), partial(lambda: uuid4().hex)
    group = uuid4().hex
    spark.sparkContext.setJobGroup(group, "a wide batch")
    with mock.patch.object(parquet_writer, "_FILE_BYTES", FILE_BYTES):
        made = world.checkpoint(trips())
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = [tracker.getStageInfo(stage) for job in jobs for stage in job.stageIds]
    rows = read_checkpoint(str(root), made, "totals")
    columns = (rows[name].to_pylist() for name in ("tail", "trips", "miles"))
    (segment,) = made.handles["totals"].segments
    return Wide(
        tasks=[stage.numTasks for stage in stages],
        file_rows=[f.file.rows for f in world.tables.files_of(segment)],
        sha256=hash_of(made.plan.schemas["totals"], rows).sha256,
        totals={tail: (n, miles) for tail, n, miles in zip(*columns, strict=True)},
    )
