"""Nexmark: `PYTHONPATH=include:. python -m benchmarks.nexmark` writes docs/benchmarks/nexmark.md and .json.

A million events wait in three topics. Each query reads them in four batches, in Tidemark as checkpoints with all
compactions that become due, and in Structured Streaming as micro-batches with state in RocksDB. Both write to Delta
tables from one driver of two cores in this process, one after the other, after a query over a tenth of the events that
warms both up. Tidemark's rows are compared with DuckDB's answers.
"""

import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from itertools import repeat
from pathlib import Path
from typing import Any

from benchmarks import generator
from benchmarks.bench import create_topic
from benchmarks.facts import made_by
from benchmarks.nexmark import streaming
from benchmarks.nexmark.events import START, events
from benchmarks.nexmark.oracle import Read, answers
from benchmarks.nexmark.page import write_page
from benchmarks.nexmark.queries import QUERIES, SIDE
from benchmarks.peers.places import JARS
from benchmarks.peers.sparks import MASTER, every
from devstack import control
from tests.support.nexmark import STATE_ONLY, agrees, rows, topics
from tidemark.context import Context, open_context
from tidemark.engine.session.session import SparkSettings, open_session
from tidemark.operations import checkpoints, compaction, reads
from tidemark.ports import PlanRequest
from tidemark.readers.sink_reader import read_sink
from tidemark.settings import load_settings

QUICK = os.environ.get("BENCH") == "quick"
EVENTS = 20_000 if QUICK else 1_000_000
PER_SECOND, PARTITIONS, BATCHES, SEED = 10_000, 4, 4, 20130101
PIPELINES = """
from dataclasses import replace

from benchmarks.nexmark.queries import QUERIES

globals().update({{name: replace(QUERIES[name], max_records=size) for name, size in {sizes}.items()}})
"""
COMMAND = "PYTHONPATH=include:. python -m benchmarks.nexmark"


def main() -> int:
    """Measures, prints one JSON object, and writes it unless the run is a quick one."""
    made = [(topic, n % PARTITIONS, event) for n, (topic, event) in enumerate(events(EVENTS, SEED, PER_SECOND))]
    counts = Counter(topic for topic, _, _ in made)
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as home:
        folder = Path(home) / "pipelines"
        folder.mkdir()
        sizes = {name: _records(name, counts) // BATCHES for name in QUERIES}
        (folder / "nexmark.py").write_text(PIPELINES.format(sizes=sizes))
        settings = load_settings(home=home, pipelines=str(folder), spark=MASTER)
        try:
            control.up(settings, only=("kafka",))
            _produce(settings.kafka_address, made)
            driver = SparkSettings(master=MASTER, jars=JARS / "spark", conf=every("", f"{home}/scratch"))
            open_session(driver, "nexmark", 1)
            found = list(_measured(open_context(settings), settings.kafka_address, counts, Path(home)))
            _compare(open_context(settings), made)
        finally:
            control.down(settings)
    data = made_by(COMMAND, SEED) | {"events": EVENTS, "rows": found}
    sys.stdout.write(json.dumps(data, indent=2) + "\n")
    if not QUICK:
        write_page(data)
    return 0


def _records(name: str, counts: Mapping[str, int]) -> int:
    return sum(counts[topic] for topic in topics(QUERIES[name]))


def _produce(bootstrap: str, made: Sequence[Read]) -> None:
    for topic in ("persons", "auctions", "bids", "side"):
        create_topic(bootstrap, topic)
        rows: list[tuple[int, Any]] = [(partition, event) for of, partition, event in made if of == topic]
        rows += [(0, row) for row in SIDE] if topic == "side" else []
        at_ms = (int(getattr(event, "date_time", START).timestamp() * 1000) for _, event in rows)
        values = (json.dumps(asdict(event), default=datetime.isoformat).encode() for _, event in rows)
        generator.send(bootstrap, topic, zip((p for p, _ in rows), repeat(None), values, at_ms, strict=False))


def _measured(context: Context, bootstrap: str, counts: Counter[str], home: Path) -> Iterator[dict[str, Any]]:
    streaming.run("q0", bootstrap, counts["bids"], home / "warm")
    for name in QUERIES:
        row: dict[str, Any] = {"query": name, "records": _records(name, counts)}
        row |= _checkpoints(context, name, row["records"])
        if name in streaming.STREAMING:
            started = time.perf_counter()
            size = max(counts[topic] for topic in topics(QUERIES[name])) // BATCHES
            row["streaming_rows"] = streaming.run(name, bootstrap, size, home / f"streaming-{name}")
            row["streaming_s"] = round(time.perf_counter() - started, 2)
        sys.stderr.write(json.dumps(row) + "\n")
        yield row


def _checkpoints(context: Context, name: str, records: int) -> dict[str, Any]:
    read, number, seconds = 0, 0, {"tidemark_s": 0.0, "compactions_s": 0.0}
    emitted: dict[str, int] = {}
    while read < records:
        started = time.perf_counter()
        made = checkpoints.run_once(context, name, PlanRequest(origin="bench")).checkpoint
        assert made is not None, f"{name} has read {read} of {records}"
        read, number = read + made.sealed.facts.records, number + 1
        seconds["tidemark_s"] += time.perf_counter() - started
        started = time.perf_counter()
        compaction.compact(context, name)
        seconds["compactions_s"] += time.perf_counter() - started
        emitted = {ack.uid: emitted.get(ack.uid, 0) + ack.emitted_to_all for ack in made.sealed.acks}
    return {"checkpoints": number, "emitted": emitted} | {of: round(s, 2) for of, s in seconds.items()}


def _compare(context: Context, made: Sequence[Read]) -> None:
    """Compares the rows of all queries with those of DuckDB.

    Raises:
        AssertionError: a query differs.
    """
    expected = answers(made)
    for name in QUERIES:
        last = reads.get_checkpoint(context, name)
        if name in STATE_ONLY:
            found = reads.read_state(context, name, name)
        else:
            found = read_sink(str(context.settings.warehouse), last.sinks[name])
        agrees(name, rows(name, found.to_pylist()), expected[name])
        sys.stderr.write(f"{name}: {found.num_rows} rows are those of DuckDB\n")


if __name__ == "__main__":
    sys.exit(main())
