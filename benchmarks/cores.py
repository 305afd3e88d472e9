"""Seconds of one large checkpoint with one core and with two: `python -m benchmarks.cores` writes cores.json.

Two topics are loaded once. For each number of cores, Kafka, Spark and the client are limited to those cores, because a
broker on a core of its own would be a second core of the one-core run. They make one checkpoint that is not counted,
because the first large one after a start takes much longer, and then one of each whole topic, several times under
pipelines of different names. The state of every pipeline must have the same hash, and numpy's values.
"""

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks import generator
from benchmarks.bench import create_topic
from benchmarks.facts import made_by
from benchmarks.report import FOLDER
from devstack import control
from tidemark.context import Context, open_context
from tidemark.operations import checkpoints, reads
from tidemark.ports import PlanRequest
from tidemark.readers.checkpoint_reader import read_checkpoint
from tidemark.readers.state_hash import hash_of
from tidemark.settings import Settings, load_settings

QUICK = os.environ.get("BENCH") == "quick"
RECORDS, SEED = 500_000 if QUICK else 2_000_000, 20130101
CORES, ROUNDS = (1, 2), 1 if QUICK else 3
KEYS = {"few": RECORDS // 10, "all": RECORDS}
"""Number of different keys: ten records each, or one."""
PIPELINE = """
from benchmarks.pipelines import Totals, Update
from tidemark import Fold, KafkaSource, Pipeline

PIPELINES = [
    Pipeline(name=f"{topic}-{cores}-{n}", source=KafkaSource(f"cores-{topic}", Update),
             operators=[Fold("totals", key_by="key", state=Totals)])
    for topic in ("few", "all") for cores in (1, 2) for n in ("warm", 0, 1, 2)
]
globals().update({p.name.replace("-", "_"): p for p in PIPELINES})
"""


def main() -> int:
    """Measures, prints one JSON object, and writes it unless the run is a quick one."""
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as home:
        folder = Path(home) / "pipelines"
        folder.mkdir()
        (folder / "cores.py").write_text(PIPELINE)
        settings = load_settings(home=home, pipelines=str(folder))
        all_cores = os.sched_getaffinity(0)
        try:
            rows = list(_measured(settings))
        finally:
            os.sched_setaffinity(0, all_cores)
            control.down(settings)
    body = made_by("python -m benchmarks.cores", SEED) | {"records": RECORDS, "rows": rows, "speed_up": _ratios(rows)}
    report = json.dumps(body, indent=2) + "\n"
    sys.stdout.write(report)
    if not QUICK:
        (FOLDER / "cores.json").write_text(report)
    return 0


def _ratios(rows: list[dict[str, Any]]) -> dict[str, float]:
    def median(topic: str, cores: int) -> float:
        return statistics.median(float(r["seconds"]) for r in rows if (r["topic"], r["cores"]) == (topic, cores))

    return {topic: round(median(topic, 1) / median(topic, 2), 2) for topic in KEYS}


def _measured(settings: Settings) -> Iterator[dict[str, Any]]:
    batches = {topic: generator.uniform(keys, RECORDS, SEED) for topic, keys in KEYS.items()}
    batches["all"] = generator.first(RECORDS)
    cores = sorted(os.sched_getaffinity(0))
    control.up(settings, only=("kafka",))
    for topic, batch in batches.items():
        create_topic(settings.kafka_address, f"cores-{topic}")
        generator.produce(settings.kafka_address, f"cores-{topic}", batch)
    hashes: dict[str, set[str]] = {}
    for count in CORES:
        control.down(settings)
        # Child processes inherit it.
        os.sched_setaffinity(0, cores[:count])
        control.up(settings, only=("kafka", "spark"))
        context = open_context(settings)
        checkpoints.run_once(context, f"few-{count}-warm", PlanRequest(origin="bench"))
        for n in range(ROUNDS):
            for topic, keys in KEYS.items():
                row, digest = _checkpoint(context, topic, count, n)
                hashes.setdefault(topic, set()).add(digest)
                _check(context, f"{topic}-{count}-{n}", batches[topic], keys)
                yield row
    if any(len(found) > 1 for found in hashes.values()):
        raise SystemExit("the states of one topic differ: this run is void")


def _checkpoint(context: Context, topic: str, cores: int, n: int) -> tuple[dict[str, Any], str]:
    started = time.perf_counter()
    made = checkpoints.run_once(context, f"{topic}-{cores}-{n}", PlanRequest(origin="bench")).checkpoint
    seconds = round(time.perf_counter() - started, 2)
    assert made is not None
    table = read_checkpoint(context.warehouse.root, made, "totals")
    (segment,) = made.handles["totals"].segments
    sizes = sorted(f.file.size for f in context.tables.files_of(segment))
    row = {"topic": topic, "cores": cores, "round": n, "seconds": seconds, "file_bytes": sizes}
    row["phases_ms"] = dict(made.sealed.timings_ms)
    sys.stderr.write(json.dumps(row) + "\n")
    return row, hash_of(made.plan.schemas["totals"], table).sha256


def _check(context: Context, name: str, batch: generator.Updates, keys: int) -> None:
    """Compares every key's state with numpy's; a wrong row voids the run."""
    counts, sums = generator.expected(iter([batch]), keys)
    table: pa.Table = reads.read_state(context, name, "totals")
    wanted = {generator.key_text(n): (int(counts[n]), int(sums[n])) for n in np.flatnonzero(counts).tolist()}
    found = dict(
        zip(
            table["key"].to_pylist(),
            zip(table["updates"].to_pylist(), table["amount"].to_pylist(), strict=True),
            strict=True,
        )
    )
    if found != wanted:
        raise SystemExit(f"{name}: the state differs from numpy's: this run is void")


if __name__ == "__main__":
    sys.exit(main())
