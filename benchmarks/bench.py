"""`make bench`: seconds and bytes per checkpoint over state size; every run is checked against numpy.

For each size, a topic is loaded with one update per key, and a first checkpoint reads them all. Rounds of 20,000
uniform updates follow, with one checkpoint per pipeline and round, interleaved so that a noisy neighbour affects all
sizes alike. The time runs from the call that plans the checkpoint (and asks Kafka for its offsets) to the published
manifest; it does not include producing. Due compactions run after each checkpoint and are timed separately. Every size
except the smallest also has a pipeline with a process operator, which looks up its keys in the state and computes the
same totals as the fold, from the same topic.
"""

import io
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks import generator
from benchmarks.facts import made_by
from benchmarks.report import write_report
from devstack import control
from tidemark.context import Context, open_context
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.operations import checkpoints, compaction, queries, reads
from tidemark.operations.queries import DiffRequest
from tidemark.ports import PlanRequest
from tidemark.readers.state_diff import Detail
from tidemark.settings import Settings, load_settings

UPDATES = 20_000
SEED = 20130101
QUICK = os.environ.get("BENCH") == "quick"
SIZES = (20_000, 500_000) if QUICK else (500_000, 2_000_000, 8_000_000)
PIPELINES = {f"bench-{n}": n for n in SIZES} | {f"bench-process-{n}": n for n in SIZES[1:]}
ROUNDS = 8 if QUICK else 40
DETAILS = (Detail.UPSERTS, Detail.CHANGES, Detail.VALUES)
"""Of a diff, without its deprecated name."""
COMMAND = "BENCH=quick make bench" if QUICK else "make bench"


def main() -> int:
    """Runs the benchmark in a separate stack and writes the report."""
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as home:
        settings = load_settings(home=home, pipelines=str(Path(__file__).parent))
        control.up(settings, only=("kafka", "spark"))
        try:
            context = open_context(settings)
            rows = list(_measured(context, settings))
            checked = {name: check(context, name, size, ROUNDS) for name, size in PIPELINES.items()}
            diffs = [_diff(context, f"bench-{SIZES[-1]}", detail) for detail in DETAILS]
        finally:
            control.down(settings)
    write_report(
        made_by(COMMAND, SEED) | {"updates": UPDATES, "rounds": ROUNDS, "checked_keys": checked, "diffs": diffs}, rows
    )
    return 0


def _measured(context: Context, settings: Settings) -> Iterator[dict[str, Any]]:
    for size in SIZES:
        create_topic(settings.kafka_address, f"bench-{size}")
        generator.produce(settings.kafka_address, f"bench-{size}", generator.first(size))
    for name in PIPELINES:
        yield _checkpoint(context, name, -1)
    for n in range(ROUNDS):
        for size in SIZES:
            batch = generator.uniform(size, UPDATES, SEED + n)
            generator.produce(settings.kafka_address, f"bench-{size}", batch)
        for name in PIPELINES:
            yield _checkpoint(context, name, n)


def _checkpoint(context: Context, name: str, n: int) -> dict[str, Any]:
    started = time.perf_counter()
    made = checkpoints.run_once(context, name, PlanRequest(origin="bench")).checkpoint
    seconds = time.perf_counter() - started
    assert made is not None
    ack = made.sealed.acks[0]
    row = {
        "pipeline": name,
        "size": PIPELINES[name],
        "round": n,
        "seconds": round(seconds, 4),
        "records": made.sealed.facts.records,
        "run_bytes": ack.run_bytes,
        "plain_bytes": _plain_bytes(context, made) if n >= 0 else None,
        "full_bytes": ack.handle.bytes,
        "phases_ms": dict(made.sealed.timings_ms),
    }
    started = time.perf_counter()
    done = compaction.compact(context, name)
    if done:
        row["compact_seconds"] = round(time.perf_counter() - started, 4)
        groups = {f.checkpoint for s in done[0].output for f in context.tables.files_of(s)}
        row["whole"] = len(groups) == 1
    sys.stderr.write(json.dumps(row) + "\n")
    return row


def _plain_bytes(context: Context, made: Checkpoint) -> int:
    """The size of the checkpoint's changed rows, keys and fields only, as one Parquet file written by pyarrow."""
    segment = made.handles["totals"].segments[-1]
    assert isinstance(context.settings.warehouse, Path)
    folder = context.settings.warehouse / segment.path
    found = [f.path for f in context.tables.files_of(segment) if f.checkpoint == made.plan.id]
    rows = pa.concat_tables(pq.read_table(folder / path, partitioning=None) for path in found)
    file = io.BytesIO()
    pq.write_table(rows.select(["key", "updates", "amount", "last_at"]), file, compression="zstd")
    return file.tell()


def _diff(context: Context, name: str, detail: Detail) -> dict[str, Any]:
    """Diffs about one percent of the keys: the changed keys, the share of bytes read, and the seconds."""
    wanted = max(1, PIPELINES[name] // 100 // UPDATES)
    newest, *_, older = reads.list_checkpoints(context, name, wanted + 1)
    request = DiffRequest(uid="totals", before=older.plan.id, after=newest.plan.id, detail=detail, limit=20)
    started = time.perf_counter()
    found = queries.diff_states(context, name, request)
    seconds = time.perf_counter() - started
    assert found.bytes_read is not None
    changed, share = sum(found.counts.values()), found.bytes_read / found.bytes_total
    return {"detail": detail.value, "changed": changed, "share": round(share, 4), "seconds": round(seconds, 3)}


def check(context: Context, name: str, size: int, rounds: int) -> int:
    """Compares every key's state with numpy's, and returns their number; a wrong row voids the run."""
    batches = [generator.first(size), *(generator.uniform(size, UPDATES, SEED + n) for n in range(rounds))]
    counts, sums = generator.expected(iter(batches), size)
    found: pa.Table = reads.read_state(context, name, "totals")
    order = np.argsort(np.array([generator.key_text(n) for n in range(size)]))
    keys = np.array([generator.key_text(int(n)) for n in order])
    table = found.sort_by("key")
    same = (
        np.array_equal(table["key"].to_numpy(), keys)
        and np.array_equal(table["updates"].to_numpy(), counts[order])
        and np.array_equal(table["amount"].to_numpy(), sums[order])
    )
    if not same:
        raise SystemExit(f"{name}: the state differs from numpy's: this run is void")
    return int(table.num_rows)


def create_topic(bootstrap: str, topic: str) -> None:
    """Creates a topic with four partitions and unlimited retention."""
    config = {"retention.ms": "-1"}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 4, 1, config=config)])[topic].result(30)


if __name__ == "__main__":
    sys.exit(main())
