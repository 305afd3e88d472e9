"""`python -m benchmarks.airflow_latency`, a part of `make bench`: from a trigger to a completed checkpoint.

The benchmark starts the whole stack: Kafka, a warm Spark Connect server, and Airflow with its scheduler and SQLite. It
produces records, triggers a DAG run over REST and waits for it to end. Runs never overlap, and the pipelines take
turns. The first runs warm up the stack and do not count. Each checkpoint must have read exactly the produced records,
and the final state of each pipeline is compared with numpy's, key by key. The results are written to
docs/benchmarks/airflow-latency.json and .md; `BENCH=quick` runs a small version and writes separate files that Git
ignores.
"""

import json
import os
import platform
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks import generator
from benchmarks.bench import SEED, create_topic
from benchmarks.generator import Updates
from benchmarks.latency.dag_run import timed_run
from benchmarks.latency.page import page
from benchmarks.latency.warm_stack import cpu_seconds, warm_stack
from benchmarks.report import FOLDER
from devstack.demo.dag_runs import Dag
from tidemark.cli.airflow_api import AirflowApi
from tidemark.context import open_context
from tidemark.operations import reads
from tidemark.settings import Settings

QUICK = os.environ.get("BENCH") == "quick"
COMMAND = f"{'BENCH=quick ' if QUICK else ''}PYTHONPATH=include python -m benchmarks.airflow_latency"
KEYS = 20_000
MANY = 20_000 if QUICK else 336_776
"""The number of flights in 2013."""
WARM, ROUNDS, FEW = (1, 2, 1) if QUICK else (3, 16, 3)
CASES = (("timed", 0), ("timed", 10_000), ("gated", 10_000))
SETTLE = 0.5
"""Seconds to wait after a run, so that the last task's process has ended and its CPU time is counted."""
Row = dict[str, Any]


@dataclass
class Measurement:
    """A running stack and the records produced to it.

    Attributes:
        settings: the stack's settings.
        api: the client of the stack's Airflow.
        sent: the batches produced per pipeline, from which the oracle computes the expected state.
    """

    settings: Settings
    api: AirflowApi
    sent: dict[str, list[Updates]] = field(default_factory=dict)

    def begin(self, *dags: str) -> None:
        """Creates a topic for each pipeline and unpauses its DAG."""
        for dag in dags:
            self.sent[dag] = []
            create_topic(self.settings.kafka_address, dag)
            Dag(api=self.api, id=dag).pause(False)

    def run(self, dag: str, records: int, number: int) -> Row:
        """Produces records, runs the DAG once, and asserts that its checkpoint read all of them."""
        if records:
            batch = generator.uniform(KEYS, records, SEED + sum(map(len, self.sent.values())))
            generator.produce(self.settings.kafka_address, dag, batch)
            self.sent[dag].append(batch)
        before, load = cpu_seconds(self.settings), os.getloadavg()[0]
        row = timed_run(self.settings, self.api, dag)
        time.sleep(SETTLE)
        after = cpu_seconds(self.settings)
        assert row["records"] == records, f"{dag} read {row['records']} records, {records} were produced"
        cpu = {name: round(after[name] - before[name], 2) for name in after}
        row = {"pipeline": dag, "round": number, **row, "cpu": cpu, "load": round(load, 1)}
        sys.stderr.write(json.dumps(row) + "\n")
        return row

    def check(self, dag: str) -> int:
        """Compares every key's count and sum with numpy's; a wrong row voids the run."""
        counts, sums = generator.expected(iter(self.sent[dag]), KEYS)
        touched = np.flatnonzero(counts)
        table: pa.Table = reads.read_state(open_context(self.settings), dag, "totals").sort_by("key")
        keys = np.array([generator.key_text(int(n)) for n in touched])
        order = np.argsort(keys)
        found = [table[name].to_numpy() for name in ("key", "updates", "amount")]
        wanted = [keys[order], counts[touched][order], sums[touched][order]]
        if not all(map(np.array_equal, found, wanted)):
            raise SystemExit(f"{dag}: the state differs from numpy's: this run is void")
        return int(table.num_rows)


def main() -> int:
    """Runs the benchmark in a separate stack and writes the data and the page."""
    with warm_stack() as (settings, api):
        measurement = Measurement(settings, api)
        rows = list(_rows(measurement))
        checked = {dag: measurement.check(dag) for dag in measurement.sent}
    facts = {
        "command": COMMAND,
        "seed": SEED,
        "cores": os.cpu_count(),
        "versions": {name: version(name) for name in ("apache-airflow", "pyspark")},
        "python": platform.python_version(),
        "checked_keys": checked,
    }
    name = "airflow-latency-quick" if QUICK else "airflow-latency"
    (FOLDER / f"{name}.json").write_text(json.dumps({"facts": facts, "rows": rows}, indent=1) + "\n")
    (FOLDER / f"{name}.md").write_text(page(f"{name}.json", facts, rows))
    return 0


def _rows(measurement: Measurement) -> Iterator[Row]:
    measurement.begin("timed", "gated")
    for number in range(-WARM, ROUNDS):
        for dag, records in CASES:
            yield measurement.run(dag, records, number)
    for number in range(FEW):
        yield measurement.run("timed", MANY, number)


if __name__ == "__main__":
    sys.exit(main())
