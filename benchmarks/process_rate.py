"""How many records a process operator takes: a part of `make bench`, written to docs/benchmarks/process-rate.json.

Ten records per key; the function changes two values and a list for each, and emits one record per key. Everything from
cached, decoded records to the kept result counts: shuffle, sort, Arrow, Python, count.
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
from tidemark.engine.session.session import SparkSettings, open_session
from tidemark.settings import load_settings

QUICK = os.environ.get("BENCH") == "quick"
RECORDS, PER_KEY, ROUNDS = 100_000 if QUICK else 500_000, 10, 3
KEPT = FOLDER / "process-rate.json"


@dataclass(frozen=True)
class Flight:
    """One record."""

    tail: str
    miles: int
    delay: float | None


@dataclass(frozen=True)
class Total:
    """One emitted record."""

    tail: str
    miles: int


class Seen(state.Keyed):
    """What is remembered."""

    flights: int = state.value(0)
    miles: int = state.value(0)
    recent: list[int] = state.list()


def add(tail: str, flights: Iterator[Flight], seen: Seen) -> Iterator[Total]:
    """Three changes per record."""
    for flight in flights:
        seen.flights += 1
        seen.miles += flight.miles
        seen.recent.append(flight.miles)
    del seen.recent[:-5]
    yield Total(tail, seen.miles)


def main() -> int:
    """Measures, prints one JSON object, and keeps it unless the run was a quick one."""
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as home:
        settings = load_settings(home=home)
        control.up(settings, only=("spark",))
        try:
            seconds = list(_measured(settings.spark_address))
        finally:
            control.down(settings)
    # The records are those of a range of numbers: the seed has nothing to choose.
    facts = made_by("make bench", 0) | {"records": RECORDS, "per_key": PER_KEY}
    rate = round(RECORDS / statistics.median(seconds[1:]))
    found = {"first_s": round(seconds[0], 2), "seconds": [round(s, 2) for s in seconds[1:]], "records_per_s": rate}
    report = json.dumps(facts | found, indent=2) + "\n"
    sys.stdout.write(report)
    if not QUICK:
        KEPT.write_text(report)
    return 0


def _measured(address: str) -> Iterator[float]:
    """Seconds of each round; the first one is a worker's first, too."""
    spark = open_session(SparkSettings(master=address), uuid.uuid4().hex, 1)
    operator = Process("seen", key_by="tail", state=Seen, function=add, emits=Total)
    pipeline = Pipeline(name="rate", source=KafkaSource("flights", Flight), operators=[operator])
    record = f"'tail', concat('N', id % {RECORDS // PER_KEY}), 'miles', id % 5000, 'delay', CAST(id AS DOUBLE)"
    records = spark.range(RECORDS).selectExpr(
        *("'flights' AS topic", "CAST(id % 4 AS INT) AS `partition`", "id AS `offset`", "0L AS _n"),
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
        record=Flight,
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
