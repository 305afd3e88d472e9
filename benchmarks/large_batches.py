"""Checkpoints of two million records next to plain Spark, Structured Streaming and Flink: large-batches.json.

All read the same records of one topic, and take turns. Tidemark and the plain query run in one Connect server, which
has seen only small batches before the first large one. The plain query decodes by `from_json`, groups by key, and
writes Parquet: no checkpoint, no offsets, no state. Structured Streaming runs a new query per batch, with its results
appended to a Delta table, in a driver of a process of its own; Flink's job is resident. At the end the states are
compared with numpy's, row by row.
"""

import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from benchmarks import generator
from benchmarks.bench import create_topic
from benchmarks.facts import made_by, versions
from benchmarks.peers.batch import ends_of, records_between
from benchmarks.peers.commanded import CommandedProcess, obey
from benchmarks.peers.flink import FlinkPeer, class_path
from benchmarks.peers.places import Place, check
from benchmarks.peers.setup_flink import VERSION, is_here
from benchmarks.peers.sparks import WARM, compiled, opened
from benchmarks.peers.tidemark_peer import TidemarkPeer
from benchmarks.report import FOLDER
from benchmarks.workload import Workload, expected_state
from devstack import control
from tidemark.engine.session.session import SparkSettings, open_session
from tidemark.settings import load_settings

QUICK = os.environ.get("BENCH") == "quick"
SEED, TOPIC = 20130101, "large"
KEYS, SMALL, LARGE = (20_000, 1_000, 300_000) if QUICK else (1_000_000, 20_000, 2_000_000)
WARM_ROUNDS, ROUNDS = (2, 3) if QUICK else (8, 10)
PEERS = tuple(os.environ.get("PEERS", "plain,fold,many,append,flink").split(","))
COMMAND = "PYTHONPATH=include:. python -m benchmarks.large_batches"
FOLD = """
SELECT found.key, count(*) AS updates, sum(found.amount) AS amount, max(found.at) AS last_at
FROM (SELECT from_json(CAST(value AS STRING), 'key STRING, amount BIGINT, at TIMESTAMP') AS found FROM {records})
GROUP BY found.key
"""


@dataclass
class PlainQuery:
    """A query that folds a range of offsets and writes the result as Parquet."""

    place: Place
    session: SparkSession
    starts: dict[str, int] = field(default_factory=lambda: {str(p): 0 for p in range(4)})
    taken: int = 0

    def take(self) -> None:
        """Folds everything since the last run."""
        ends = ends_of(self.place)
        rows = self.session.sql(FOLD, records=records_between(self.session, self.place, self.starts, ends))
        rows.write.option("compression", "zstd").parquet(f"{self.place.folder}/{self.taken}")
        self.starts, self.taken = ends, self.taken + 1

    def rows(self) -> pa.Table:
        """Adds the results of all runs up."""
        every = pa.concat_tables(pq.read_table(f"{self.place.folder}/{n}") for n in range(self.taken))
        found = every.group_by("key").aggregate([("updates", "sum"), ("amount", "sum"), ("last_at", "max")])
        return found.rename_columns(["key", "updates", "amount", "last_at"])

    def close(self) -> None:
        """Does nothing."""


@dataclass
class StreamingChild:
    """Structured Streaming in a process of its own, because this one is a client of the Connect server."""

    place: Place
    child: CommandedProcess = field(init=False)

    def __post_init__(self) -> None:
        self.child = CommandedProcess.of_module("benchmarks.large_batches", self.place.as_json())

    def take(self) -> None:
        """Runs one query to the end of the topic."""
        self.child.tell("take")

    def rows(self) -> pa.Table:
        """Has the child write the state to a file."""
        self.child.tell("rows")
        return pq.read_table(f"{self.place.folder}/rows.parquet")

    def close(self) -> None:
        """Ends the child."""
        self.child.close()


def main() -> int:
    """Measures, prints one JSON object, and writes it unless the run is a quick one."""
    if len(sys.argv) > 1:
        return _stream(Place(**json.loads(sys.argv[1])))
    flink = is_here()
    kinds = tuple(kind for kind in PEERS if kind != "flink" or flink)
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as home:
        settings = load_settings(home=home)
        control.up(settings, only=("kafka", "spark"))
        try:
            classes = compiled(Path(home, "classes"))
            if flink:
                compiled(classes, "FlinkTotals.java", class_path(""))
            places = {
                kind: Place(settings.kafka_address, TOPIC, str(Path(home, "cases", kind)), str(classes))
                for kind in kinds
            }
            rows = list(_measured(places, settings.spark_address))
        finally:
            control.down(settings)
            shutil.rmtree(Path(home, "cases"), ignore_errors=True)
    facts = made_by(COMMAND, SEED) | {"records": LARGE, "keys": KEYS, "rounds": ROUNDS}
    facts["versions"] = versions() | ({"flink": VERSION} if flink else {})
    body = facts | {"medians": _medians(rows), "rows": rows}
    report = json.dumps(body, indent=1) + "\n"
    sys.stdout.write(json.dumps(facts | {"medians": _medians(rows)}, indent=1) + "\n")
    if not QUICK and "PEERS" not in os.environ:
        (FOLDER / "large-batches.json").write_text(report)
    return 0


def _medians(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """The median seconds of each system, relative to the plain query's; the first round does not count."""
    kinds = dict.fromkeys(row["kind"] for row in rows)
    found = {k: statistics.median(r["seconds"] for r in rows if r["kind"] == k and r["round"]) for k in kinds}
    first = {k: next(r["seconds"] for r in rows if r["kind"] == k) for k in kinds}
    least = found.get("plain", 1.0)
    return {
        k: {"seconds": round(s, 2), "to_plain": round(s / least, 2), "first_to_median": round(first[k] / s, 2)}
        for k, s in found.items()
    }


def _peer(kind: str, place: Place, spark: str) -> Any:
    Path(place.folder).mkdir(parents=True)
    if kind == "plain":
        # A session of its own has the server's settings.
        session = open_session(SparkSettings(master=spark), "plain", LARGE)
        return PlainQuery(place, session)
    if kind == "append":
        return StreamingChild(place)
    if kind == "flink":
        return FlinkPeer(place)
    return TidemarkPeer(place, spark, pipeline=f"{TOPIC}-{kind}")


def _measured(places: dict[str, Place], spark: str) -> Iterator[dict[str, Any]]:
    create_topic(next(iter(places.values())).bootstrap, TOPIC)
    small = Workload(KEYS, SMALL, SEED, new=0, deleted=0)
    large = Workload(KEYS, LARGE, SEED, new=0, deleted=0)
    peers = {kind: _peer(kind, place, spark) for kind, place in places.items()}
    sent = []
    try:
        for n in range(-WARM_ROUNDS, ROUNDS):
            batch = (small if n < 0 else large).batch(n + WARM_ROUNDS, KEYS)
            generator.produce(next(iter(places.values())).bootstrap, TOPIC, batch)
            sent.append(batch)
            for kind in [*peers][n % len(peers) :] + [*peers][: n % len(peers)]:
                started = time.perf_counter()
                peers[kind].take()
                row = {"kind": kind, "round": n, "seconds": round(time.perf_counter() - started, 3)}
                row |= {"phases": getattr(peers[kind], "phases", {})}
                sys.stderr.write(json.dumps(row) + "\n")
                if n >= 0:
                    yield row
        wanted = expected_state(sent)
        for kind, peer in peers.items():
            check(kind, peer.rows(), wanted)
    finally:
        for peer in peers.values():
            peer.close()


def _stream(place: Place) -> int:
    """The main function of `StreamingChild`'s process."""
    from benchmarks.peers.streaming import StreamingPeer

    opened(place.classes, f"{place.folder}/scratch", WARM)
    peer = StreamingPeer(place, "append", changelog=False)
    rows = f"{place.folder}/rows.parquet"
    return obey({"take": peer.take, "rows": lambda: pq.write_table(peer.rows(), rows)}, dict)


if __name__ == "__main__":
    sys.exit(main())
