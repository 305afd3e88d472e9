"""`make bench`: seconds and bytes per checkpoint over state size; every run is checked against numpy.

For each size a topic is loaded with one update per key and a first checkpoint takes them all. Then rounds of 20,000
uniform updates follow, one checkpoint per size and round, interleaved, so that a noisy neighbour hits all sizes
alike. The time runs from the call that plans (Kafka's offsets) to the published manifest; producing is not in it.
"""

import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka.admin import AdminClient, NewTopic

from tests.perf import generator
from tests.perf.report import write_report
from tidemark.ports import PlanRequest
from tidemark.settings import Settings, load_settings
from tidemark.stack import control
from tidemark.wiring import Runtime, open_runtime

UPDATES = 20_000
SEED = 20130101
QUICK = os.environ.get("BENCH") == "quick"
SIZES = (20_000, 500_000) if QUICK else (500_000, 2_000_000, 8_000_000)
ROUNDS = 8 if QUICK else 32
COMMAND = "BENCH=quick make bench" if QUICK else "make bench"


def main() -> int:
    """Runs the benchmark in a stack of its own and writes the report."""
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as home:
        settings = load_settings(home=home, pipelines=str(Path(__file__).parent))
        control.up(settings, only=("kafka", "spark"))
        try:
            runtime = open_runtime(settings)
            rows = list(_measured(runtime, settings))
            checked = {size: _check(runtime, size) for size in SIZES}
        finally:
            control.down(settings)
    facts = {"command": COMMAND, "seed": SEED, "cores": os.cpu_count(), "python": platform.python_version()}
    write_report(facts | {"updates": UPDATES, "rounds": ROUNDS, "checked_keys": checked}, rows)
    return 0


def _measured(runtime: Runtime, settings: Settings) -> Iterator[dict[str, Any]]:
    for size in SIZES:
        create_topic(settings.kafka_address, f"bench-{size}")
        generator.produce(settings.kafka_address, f"bench-{size}", generator.first(size))
        yield _checkpoint(runtime, size, -1)
    for n in range(ROUNDS):
        for size in SIZES:
            batch = generator.uniform(size, UPDATES, SEED + n)
            generator.produce(settings.kafka_address, f"bench-{size}", batch)
            yield _checkpoint(runtime, size, n)


def _checkpoint(runtime: Runtime, size: int, n: int) -> dict[str, Any]:
    started = time.perf_counter()
    made = runtime.run_once(f"bench-{size}", PlanRequest(origin="bench"))
    seconds = time.perf_counter() - started
    assert made.checkpoint is not None
    ack = made.checkpoint.sealed.acks[0]
    row = {
        "size": size,
        "round": n,
        "seconds": round(seconds, 4),
        "records": made.checkpoint.sealed.facts.records,
        "run_bytes": ack.run_bytes,
        "full_bytes": ack.handle.bytes,
        "phases_ms": dict(made.checkpoint.sealed.timings_ms),
    }
    sys.stderr.write(json.dumps(row) + "\n")
    return row


def _check(runtime: Runtime, size: int) -> int:
    """Compares every key's state with numpy's; a wrong row voids the run."""
    batches = [generator.first(size), *(generator.uniform(size, UPDATES, SEED + n) for n in range(ROUNDS))]
    counts, sums = generator.expected(iter(batches), size)
    found: pa.Table = runtime.state_table(f"bench-{size}", "totals")
    order = np.argsort(np.array([generator.key_text(n) for n in range(size)]))
    keys = np.array([generator.key_text(int(n)) for n in order])
    table = found.sort_by("key")
    same = (
        np.array_equal(table["key"].to_numpy(), keys)
        and np.array_equal(table["updates"].to_numpy(), counts[order])
        and np.array_equal(table["amount"].to_numpy(), sums[order])
    )
    if not same:
        raise SystemExit(f"bench-{size}: the state differs from numpy's: this run is void")
    return table.num_rows


def create_topic(bootstrap: str, topic: str) -> None:
    """Makes a topic of four partitions that keeps its records."""
    config = {"retention.ms": "-1"}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 4, 1, config=config)])[topic].result(30)


if __name__ == "__main__":
    sys.exit(main())
