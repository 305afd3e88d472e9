"""Memory of what reads and writes a large state: `python -m benchmarks.memory 8000000 64000000` writes memory.json.

A topic has one record per key, and later one more for each of 20,000 keys. The command line makes the checkpoints, of
four million records each, compacts everything, makes a savepoint, resolves the state with Spark, hashes it, exports it,
shows one key, and removes what retention does not keep, in processes of their own, with a Spark server that has its
default heap. A second pipeline computes the same with a process, whose function runs in Python workers. The exported
rows must be those that DuckDB computes from the generator's numbers.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import generator
from benchmarks.bench import create_topic
from benchmarks.facts import made_by
from benchmarks.peaks import Peaks
from benchmarks.report import FOLDER
from devstack import control
from tidemark.settings import Settings, load_settings

PIECE, AT_ONCE, UPDATES = 4_000_000, 1_000_000, 20_000
RESOLVE = """
import tidemark
from pyspark.sql import SparkSession

spark = SparkSession.builder.remote({address!r}).getOrCreate()
tidemark.read_state(spark, {name!r}, "totals", by="spark").write.format("noop").mode("overwrite").save()
"""
PIPELINE = """
from dataclasses import replace
from benchmarks.pipelines import processed, sized

fold = replace(sized({keys}), max_records={piece})
process = replace(processed({keys}), max_records={piece})
"""
BACK = "4000m"
"""Memory of DuckDB for the comparison, which is not measured."""


def main(argv: list[str]) -> int:
    """Measures the given numbers of keys, prints one JSON object and writes it."""
    sizes = sorted(int(word) for word in argv) or [8_000_000, 64_000_000]
    rows: list[dict[str, Any]] = []
    for keys in sizes:
        with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as home:
            rows += _measured(Path(home), keys)
    command = f"python -m benchmarks.memory {' '.join(map(str, sizes))}"
    body = made_by(command, 0) | {"spark_driver_memory": load_settings().spark_driver_memory, "rows": rows}
    report = json.dumps(body, indent=2) + "\n"
    sys.stdout.write(report)
    (FOLDER / "memory.json").write_text(report)
    return 0


def _measured(home: Path, keys: int) -> list[dict[str, Any]]:
    folder = home / "pipelines"
    folder.mkdir()
    (folder / "large.py").write_text(PIPELINE.format(keys=keys, piece=PIECE))
    settings = load_settings(home=str(home), pipelines=str(folder))
    env = os.environ | {"TIDEMARK_HOME": str(home), "TIDEMARK_PIPELINES": str(folder)}
    try:
        control.up(settings, only=("kafka",))
        create_topic(settings.kafka_address, f"bench-{keys}")
        generator.produce(settings.kafka_address, f"bench-{keys}", generator.first(keys))
        control.up(settings, only=("kafka", "spark"))
        exported = home / "export.parquet"
        rows: list[dict[str, Any]] = []
        for updates, name in enumerate((f"bench-{keys}", f"bench-process-{keys}"), start=1):
            rows += _phases(settings, env, name, keys, exported)
            _check(home, exported, keys, updates)
        return rows
    finally:
        control.down(settings)


def _phases(settings: Settings, env: dict[str, str], name: str, keys: int, to: Path) -> Iterator[dict[str, Any]]:
    command = [sys.executable, "-m", "tidemark.cli.main"]
    steps = {
        "fold": [*command, "run", name],
        "compact": [*command, "compact", name, "--full"],
        "update": [*command, "run", name],
        "savepoint": [*command, "savepoint", "create", name, "kept"],
        "resolve": [sys.executable, "-c", RESOLVE.format(address=settings.spark_address, name=name)],
        "hash": [*command, "state", "hash", name, "totals"],
        "export": [*command, "state", "export", name, "totals", "--to", str(to)],
        "show": [*command, "state", "show", name, "totals", "--key", generator.key_text(keys // 2)],
        "retention": [*command, "retention", "apply", name, "--keep", "keep_last(1)", "--grace", "0", "--execute"],
    }
    for step, program in steps.items():
        if step == "update":
            generator.produce(settings.kafka_address, f"bench-{keys}", generator.first(UPDATES))
        started = time.perf_counter()
        with Peaks() as peaks:
            server = next(s.pid for s in control.status(settings) if s.name == "spark")
            assert server is not None
            peaks.watch("spark", server)
            with subprocess.Popen(program, env=env, stdout=subprocess.DEVNULL) as client:
                peaks.watch("client", client.pid)
                client.wait()
            if client.returncode:
                raise SystemExit(f"{name}: {step} ended with {client.returncode}: this run is void")
        seconds = round(time.perf_counter() - started, 1)
        row = {"pipeline": name, "keys": keys, "step": step, "seconds": seconds, "peak_mib": peaks.mib}
        sys.stderr.write(json.dumps(row) + "\n")
        yield row


def _check(home: Path, exported: Path, keys: int, updates: int) -> None:
    """Compares the exported rows with the generator's numbers; a difference voids the run."""
    right = home / "right.parquet"
    shape = pa.schema({"key": pa.string(), "updates": pa.int64(), "amount": pa.int64()})
    with pq.ParquetWriter(right, shape) as writer:
        for begin in range(0, keys, AT_ONCE):
            numbers = range(begin, min(keys, begin + AT_ONCE))
            counts = [1 + updates if n < UPDATES else 1 for n in numbers]
            amounts = [count * (n % 97) for n, count in zip(numbers, counts, strict=True)]
            columns = [[generator.key_text(n) for n in numbers], counts, amounts]
            writer.write_table(pa.table(columns, schema=shape))
    with duckdb.connect(config={"memory_limit": BACK, "temp_directory": str(home)}) as db:
        names = {"found": str(exported), "right": str(right)}
        found, wrong = db.execute(
            "SELECT count(*), count(*) FILTER (WHERE f.key IS NULL OR r.key IS NULL OR f.updates <> r.updates"
            " OR f.amount <> r.amount) FROM read_parquet($found) f FULL JOIN read_parquet($right) r ON f.key = r.key",
            names,
        ).fetchall()[0]
    if (found, wrong) != (keys, 0):
        raise SystemExit(f"{wrong} of {found} keys differ from the generator's {keys}: this run is void")
    exported.unlink()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
