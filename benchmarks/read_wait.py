"""Why a bounded Kafka read waits: `PYTHONPATH=include python -m benchmarks.read_wait` prints a Markdown table.

After a few checkpoints, Spark repeatedly counts the offset range of the newest one, with different consumer options
each time.
"""

import statistics
import sys
import tempfile
import time
import uuid
from pathlib import Path

from benchmarks import generator
from benchmarks.bench import create_topic
from devstack import control
from tidemark.context import open_context
from tidemark.engine.read.source import KafkaOptions, read_ranges
from tidemark.engine.session.session import open_session
from tidemark.operations import checkpoints
from tidemark.ports import PlanRequest
from tidemark.settings import load_settings

NAME, KEYS, UPDATES, ROUNDS, COUNTS = "bench-20000", 20_000, 20_000, 3, 9
DEFAULTS = {"fetch.max.wait.ms": "500", "max.poll.records": "500", "max.partition.fetch.bytes": "1048576"}
WAIT, SHORT, LARGE = {"fetch.max.wait.ms": "20"}, {"fetch.max.wait.ms": "1"}, {"max.poll.records": "50000"}
BYTES = {"max.partition.fetch.bytes": str(8 * 2**20)}
TRIALS: dict[str, dict[str, str]] = {
    "Kafka's defaults": {},
    "`max.poll.records=50000`": LARGE,
    "`max.partition.fetch.bytes` of 8 MiB": BYTES,
    "`fetch.max.wait.ms=20`": WAIT,
    "`fetch.max.wait.ms=1`": SHORT,
    "`fetch.max.wait.ms=20`, `max.poll.records=50000`": {**WAIT, **LARGE},
    "`fetch.max.wait.ms=1`, `max.poll.records=50000`": {**SHORT, **LARGE},
    "the same, `max.partition.fetch.bytes` of 8 MiB": {**SHORT, **LARGE, **BYTES},
}
"""The options that each trial adds to `DEFAULTS`, which names Kafka's defaults because the engine overrides them."""


def main() -> int:
    """Measures in a separate stack and prints the table."""
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as home:
        settings = load_settings(home=home, pipelines=str(Path(__file__).parent))
        control.up(settings, only=("kafka", "spark"))
        try:
            context = open_context(settings)
            create_topic(settings.kafka_address, NAME)
            for seed in range(ROUNDS):
                generator.produce(settings.kafka_address, NAME, generator.uniform(KEYS, UPDATES, seed))
                made = checkpoints.run_once(context, NAME, PlanRequest(origin="bench")).checkpoint
            assert made is not None
            session = open_session(context.spark, uuid.uuid4().hex, 1)
            sys.stdout.write("| tried | a count of the range, s |\n|---|---:|\n")
            for label, client in TRIALS.items():
                options = KafkaOptions(bootstrap=settings.kafka_address, client={**DEFAULTS, **client})
                seconds = []
                for _ in range(COUNTS):
                    started = time.perf_counter()
                    assert read_ranges(session, made.plan, "records", options).count() == UPDATES
                    seconds.append(time.perf_counter() - started)
                sys.stdout.write(f"| {label} | {statistics.median(seconds[1:]):.2f} |\n")
            session.stop()
        finally:
            control.down(settings)
    return 0


if __name__ == "__main__":
    sys.exit(main())
