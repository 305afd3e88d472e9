"""Throughput of a process operator: a part of `make bench`, written to docs/benchmarks/process-rate.json.

Each key has ten records. The function changes two values and a list for each record, and emits one record per key. The
time runs from cached, decoded records to the cached result, and includes shuffle, sort, Arrow, Python and count.
"""

import json
import os
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.facts import made_by
from benchmarks.report import FOLDER
from devstack import control
from tests.support.readings import plan_of
from tests.support.spark_warehouse import warehouse_of
from tidemark import KafkaSource, Pipeline, Process, state
from tidemark.engine.process.process_operator import ProcessTask, run_process
from tidemark.engine.read.frames import NO_PATH
from tidemark.engine.session.session import SparkSettings, open_session
from tidemark.processing.shapes import record_shape
from tidemark.settings import load_settings

QUICK = os.environ.get("BENCH") == "quick"
RECORDS, PER_KEY, ROUNDS = 100_000 if QUICK else 500_000, 10, 3
KEPT = FOLDER / "process-rate.json"


@dataclass(frozen=True)
class Flight:
    """An input record."""

    tail: str
    miles: int
    delay: float | None


@dataclass(frozen=True)
class Total:
    """An emitted record."""

    tail: str
    miles: int


class Seen(state.Keyed):
    """The state kept per tail number."""

    flights: int = state.value(0)
    miles: int = state.value(0)
    recent: list[int] = state.list()


def add(tail: str, flights: Iterator[Flight], seen: Seen) -> Iterator[Total]:
    """Makes three changes per record, and emits one total per key."""
    for flight in flights:
        seen.flights += 1
        seen.miles += flight.miles
        seen.recent.append(flight.miles)
    del seen.recent[:-5]
    yield Total(tail, seen.miles)


def main() -> int:
    """Measures, prints one JSON object, and writes it to docs/benchmarks unless the run is a quick one."""
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as home:
        settings = load_settings(home=home)
        control.up(settings, only=("spark",))
        try:
            seconds = list(_measured(settings.spark_address))
        finally:
            control.down(settings)
    # The records are generated from a range of numbers, so there is no randomness to seed.
    facts = made_by("make bench", 0) | {"records": RECORDS, "per_key": PER_KEY}
    rate = round(RECORDS / statistics.median(seconds[1:]))
    found = {"first_s": round(seconds[0], 2), "seconds": [round(s, 2) for s in seconds[1:]], "records_per_s": rate}
    report = json.dumps(facts | found, indent=2) + "\n"
    sys.stdout.write(report)
    if not QUICK:
        KEPT.write_text(report)
    return 0


def _measured(address: str) -> Iterator[float]:
    """Yields the seconds of each round; the first round is also the first one of the Python workers."""
    spark = open_session(SparkSettings(master=address), uuid.uuid4().hex, 1)
    operator = Process("seen", key_by="tail", state=Seen, function=add, emits=Total)
    pipeline = Pipeline(name="rate", source=KafkaSource("flights", Flight), operators=[operator])
    record = f"'tail', concat('N', id % {RECORDS // PER_KEY}), 'miles', id % 5000, 'delay', CAST(id AS DOUBLE)"
    records = spark.range(RECORDS).selectExpr(
        *("'flights' AS topic", "CAST(id % 4 AS INT) AS `partition`", "id AS `offset`", f"{NO_PATH} AS _path"),
        *("timestamp_millis(id) AS timestamp", "timestamp_millis(id) AS event_time"),
        f"named_struct({record}) AS record",
        *("CAST(NULL AS STRING) AS _reason", "CAST(NULL AS BINARY) AS key", "CAST(NULL AS BINARY) AS value"),
    )
    kept = records.persist()
    kept.count()
    task = ProcessTask(
        warehouse=warehouse_of(spark, Path()),
        plan=plan_of(pipeline, 1, {}),
        operator=operator,
        record=record_shape(Flight),
        records=kept,
        applied=RECORDS,
    )
    for _ in range(ROUNDS + 1):
        started = time.perf_counter()
        run_process(task).release()
        yield time.perf_counter() - started
    spark.stop()


if __name__ == "__main__":
    sys.exit(main())
