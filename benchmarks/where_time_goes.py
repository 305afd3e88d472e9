"""Where a small checkpoint's time goes: `PYTHONPATH=include:. python -m benchmarks.where_time_goes` prints two tables.

The first table shows the CPU time of one warm driver by thread, for a checkpoint and a streaming query that take turns
over the same records. The second adds up the CPU time per record, step by step, from Kafka to the files of a run, when
everything is warm.
"""

import re
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
from pyspark.sql import DataFrame, SparkSession

from benchmarks import generator
from benchmarks.bench import SEED, create_topic
from benchmarks.peers.lineup import KINDS
from benchmarks.peers.pipelines.totals import EVERY
from benchmarks.peers.places import Peer, Place, topic_of
from benchmarks.peers.sparks import MASTER, WARM, compiled, opened
from benchmarks.workload import Workload
from devstack import control
from tidemark.engine.read import batch_stats as tally
from tidemark.engine.read.frames import decode, fold
from tidemark.engine.read.observed_batch_stats import ObservedBatchStats
from tidemark.engine.read.source import KafkaOptions, read_ranges
from tidemark.engine.write.parquet_writer import Observed, RunFolder, RunSize, write_rows
from tidemark.model.core.ttl import Now
from tidemark.operations import checkpoints
from tidemark.ports import PlanRequest
from tidemark.settings import load_settings

RECORDS, ROUNDS, REPEATED, MANY = 20_000, 30, 12, 60_000
SYSTEMS = ("tidemark", "append")
THREADS = {
    "tasks": "Executor task",
    "JIT compiler": "C[12] Compiler",
    "driver": "Thread-|stream exec|Python",
    "collector": "G1|GC",
}
"""Patterns for the start of a JVM thread's name, as Linux stores it; Python's own CPU time counts as the driver's."""


ONE = RunSize(1)
"""One file, written by Spark."""


def main() -> int:
    """Starts a broker and a driver, measures, and prints the tables."""
    with tempfile.TemporaryDirectory(prefix="tidemark-where-") as home:
        settings = load_settings(home=home)
        control.up(settings, only=("kafka",))
        try:
            classes = str(compiled(Path(home, "classes")))
            spark = opened(classes, f"{home}/scratch", WARM)
            for line in (
                *_threads(spark, settings.kafka_address, home, classes),
                "",
                *_steps(spark, settings.kafka_address, home),
            ):
                sys.stdout.write(f"{line}\n")
            spark.stop()
        finally:
            control.down(settings)
    return 0


def _threads(spark: SparkSession, bootstrap: str, home: str, classes: str) -> Iterator[str]:
    """Yields a table of CPU milliseconds per run by thread, the means over the second half of the rounds."""
    peers = {kind: _peer(kind, Place(bootstrap, topic_of(0), f"{home}/{kind}", classes)) for kind in SYSTEMS}
    workload, jvm, above = Workload(MANY // 5, RECORDS, SEED), _jvm(spark), MANY // 5
    create_topic(bootstrap, topic_of(0))
    generator.produce(bootstrap, topic_of(0), workload.load())
    for peer in peers.values():
        peer.take()
    spent: dict[str, list[Counter[str]]] = {kind: [] for kind in peers}
    for n in range(ROUNDS):
        generator.produce(bootstrap, topic_of(0), workload.batch(n, above))
        above += workload.fresh
        for kind, peer in peers.items():
            before, began = _cpu(jvm), time.perf_counter()
            peer.take()
            seconds = time.perf_counter() - began
            spent[kind].append(_cpu(jvm) - before | Counter({"wall": round(seconds * 1000)}))
            peer.upkeep()
    names = (*THREADS, "the rest", "wall")
    yield f"| CPU, ms; `wall` is time | {' | '.join(names)} |"
    yield "|---|" + "---:|" * len(names)
    for kind, rounds in spent.items():
        told = (f"{statistics.mean(r[name] for r in rounds[ROUNDS // 2 :]):,.0f}" for name in names)
        yield f"| {kind} | {' | '.join(told)} |"


def _peer(kind: str, place: Place) -> Peer:
    Path(place.folder).mkdir()
    return KINDS[kind].make(place, MASTER)


def _jvm(spark: SparkSession) -> psutil.Process:
    assert spark._jvm is not None
    name: str = spark._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getName()
    return psutil.Process(int(name.partition("@")[0]))


def _cpu(jvm: psutil.Process) -> Counter[str]:
    """CPU milliseconds by thread so far; the time of ended threads, known from the process, counts as the rest."""
    found = Counter[str]()
    for task in Path(f"/proc/{jvm.pid}/task").iterdir():
        try:
            name, _, stat = (task / "stat").read_text().partition("(")[2].rpartition(")")
        except FileNotFoundError:
            continue
        kind = next((kind for kind, begin in THREADS.items() if re.match(begin, name)), "the rest")
        found[kind] += 10 * sum(map(int, stat.split()[11:13]))
    whole = jvm.cpu_times()
    found["the rest"] += round((whole.user + whole.system) * 1000) - found.total()
    own = psutil.Process().cpu_times()
    found["driver"] += round((own.user + own.system) * 1000)
    return found


def _steps(spark: SparkSession, bootstrap: str, home: str) -> Iterator[str]:
    """Yields a table of CPU microseconds per record: each step with those it builds on, the fewest of some tries."""
    topic, pipeline, jvm = topic_of(1), EVERY[1], _jvm(spark)
    create_topic(bootstrap, topic)
    generator.produce(bootstrap, topic, Workload(MANY, RECORDS, SEED).load())
    peer = _peer("tidemark", Place(bootstrap, topic, f"{home}/steps", ""))
    made = checkpoints.run_once(peer.context, topic, PlanRequest(origin="bench")).checkpoint  # type: ignore[attr-defined]
    assert made is not None
    plan, (name,) = made.plan, pipeline.inputs

    def raw() -> DataFrame:
        return read_ranges(spark, plan, name, KafkaOptions(bootstrap=bootstrap))

    def read() -> DataFrame:
        return decode(raw(), pipeline, plan, name)

    def kept() -> None:
        records = read().persist()
        tally.count_batch({name: records}, pipeline, plan)
        records.unpersist(True)

    def passed() -> None:
        observed, tally_of = Observed(), ObservedBatchStats(pipeline, plan, name)
        shown = fold(tally_of.on(read(), observed), schema, plan, now)
        write_rows(shown, order, RunFolder(path=next(folders)), ONE, bounded, observed)
        assert tally_of.result(observed) is not None

    held = read().persist()
    held.count()
    schema = plan.schemas["totals"]
    now = Now(event_time_ms=None, logical_time_ms=plan.logical_time_ms)
    run = fold(held, schema, plan, now)
    bounded = schema.bounded_columns
    order = ["_key_group", *(key.name for key in schema.keys)]
    folders = (f"{home}/run-{n}" for n in range(1000))

    def written() -> None:
        write_rows(run, order, RunFolder(path=next(folders)), ONE, bounded)

    steps: dict[str, Callable[[], object]] = {
        "Kafka's records, counted": lambda: raw().count(),
        "decoded, thrown away": lambda: _thrown(read()),
        "decoded and tallied": lambda: tally.count_batch({name: read()}, pipeline, plan),
        "decoded, cached and tallied: what a checkpoint reads with a gate, or of many records": kept,
        "tallied from the cache": lambda: tally.count_batch({name: held}, pipeline, plan),
        "folded from the cache, thrown away": lambda: _thrown(run),
        "folded from the cache and written": lambda: write_rows(
            run, order, RunFolder(path=next(folders)), ONE, bounded
        ),
        "decoded, tallied in passing, folded and written: a small checkpoint without a gate": passed,
    }
    yield "| step | CPU per record, µs |"
    yield "|---|---:|"
    for title, act in steps.items():
        least = min(_spent(jvm, act) for _ in range(REPEATED))
        yield f"| {title} | {least * 1_000 / MANY:.1f} |"


def _thrown(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()


def _spent(jvm: psutil.Process, act: Callable[[], object]) -> float:
    """The CPU milliseconds of a call, in the JVM and in Python."""
    before = _cpu(jvm).total()
    act()
    return _cpu(jvm).total() - before


if __name__ == "__main__":
    sys.exit(main())
