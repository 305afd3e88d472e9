"""Effect of caching generated code: `PYTHONPATH=include python -m benchmarks.generated_code` prints a Markdown table.

Each server runs small checkpoints of the flights. The first has the defaults of Spark's own server class, which caches
up to a hundred classes per session; the second shares a cache of that size between sessions; the third is configured as
the embedded Spark. Only the last checkpoints count, when the server is warm.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path
from unittest import mock

import psutil

from devstack import control, spark_server
from devstack.demo import flights_data
from devstack.demo import reference_data as nyc_reference
from devstack.demo.topic_loader import TopicLoader
from devstack.processes import load_record
from tidemark.context import open_context
from tidemark.operations import checkpoints
from tidemark.ports import PlanRequest
from tidemark.settings import Settings, load_settings

CHECKPOINTS, COUNTED, RECORDS = 12, 5, 5000
_CLASS = "org.apache.spark.sql.catalyst.expressions.codegen.CodeGenerator"
LOGGING = f"{spark_server.LOGGING}logger.code.name = {_CLASS}\nlogger.code.level = info\n"
ISOLATED = {
    "spark.sql.artifact.isolation.enabled": "true",
    "spark.sql.artifact.isolation.alwaysApplyClassloader": "true",
    "spark.sql.codegen.cache.maxEntries": "100",
}
SERVERS = {
    "per session, 100 classes (Spark's own server)": ISOLATED,
    "shared, 100 classes": spark_server.SHARED_CODE | {"spark.sql.codegen.cache.maxEntries": "100"},
    "shared, 2,000 classes (the embedded Spark)": spark_server.SHARED_CODE,
}


def main() -> int:
    """Measures each server in a separate stack, one after another, and prints the table."""
    sys.stdout.write(
        "| generated code is kept | classes compiled | server's CPU, s | checkpoint, s |\n|---|---:|---:|---:|\n"
    )
    for label, conf in SERVERS.items():
        with (
            tempfile.TemporaryDirectory(prefix="tidemark-bench-") as home,
            mock.patch.object(spark_server, "SHARED_CODE", dict(conf)),
            mock.patch.object(spark_server, "LOGGING", LOGGING),
        ):
            rows = _measured(load_settings(home=home))
        middle = [statistics.median(column) for column in zip(*rows[-COUNTED:], strict=True)]
        sys.stdout.write(f"| {label} | {middle[0]:.0f} | {middle[1]:.1f} | {middle[2]:.1f} |\n")
        sys.stdout.flush()
    return 0


def _measured(settings: Settings) -> list[tuple[int, float, float]]:
    """The classes compiled, the server's CPU seconds, and the seconds of each checkpoint."""
    control.up(settings, only=("kafka", "spark"))
    try:
        _fill(settings)
        record = load_record(settings.home, "spark")
        assert record is not None
        server, log = psutil.Process(record.pid), settings.home / "logs" / "spark.log"
        context, rows = open_context(settings), []
        for _ in range(CHECKPOINTS):
            before, began = (_compiled(log), _cpu(server)), time.perf_counter()
            checkpoints.run_once(context, "flights", PlanRequest(origin="bench", max_records=RECORDS))
            seconds = time.perf_counter() - began
            rows.append((_compiled(log) - before[0], _cpu(server) - before[1], seconds))
        return rows
    finally:
        control.down(settings)


def _fill(settings: Settings) -> None:
    topics = {
        "flights": flights_data.read_flights(),
        "planes": nyc_reference.read_planes(),
        "airlines": nyc_reference.read_airlines(),
    }
    for name, records in topics.items():
        loader = TopicLoader(settings.kafka_address, name, partitions=4 if name == "flights" else 1)
        loader.prepare()
        loader.load(records, lambda _done, _total: None)


def _compiled(log: Path) -> int:
    return log.read_text(errors="replace").count("Code generated in")


def _cpu(server: psutil.Process) -> float:
    times = server.cpu_times()
    return float(times.user + times.system)


if __name__ == "__main__":
    sys.exit(main())
