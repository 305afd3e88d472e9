"""Cost of reading and compacting state: a part of `make bench`, written to docs/benchmarks/state-costs.json.

One Spark session reads one state on the local disk, whose runs above the base hold updates for 5 % of the keys. Each
figure is the median of interleaved repetitions in one process, so that the ratios are meaningful.
"""

import itertools
import json
import math
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from benchmarks.facts import made_by
from benchmarks.synthetic import NOW, Synthetic
from benchmarks.timing import medians
from tests.support.spark_warehouse import warehouse_of
from tidemark.coordinator.checkpoints.state_compactor import CompactionTask, StateCompactor
from tidemark.engine.session.session import SparkSettings, open_session
from tidemark.engine.state.resolve_ranges import resolved_by_ranges
from tidemark.engine.state.resolve_sql import of_keys, resolve_state
from tidemark.engine.write.parquet_writer import written_run
from tidemark.model.state.compaction import LevelPolicy
from tidemark.model.state.key_choice import chosen_groups, key_choice
from tidemark.ports import PutOutcome
from tidemark.readers.checkpoint_reader import stream_checkpoint
from tidemark.readers.state_reader import range_reader, read_state
from tidemark.sql.resolve import empty_columns
from tidemark.storage.parquet_folder import ParquetFolder, open_rows_writer
from tidemark.tables.delta_tables import arrow_schema
from tidemark.testing.twin.memory import ManualClock
from tidemark.transfer.export_folder import FolderExport
from tidemark.transfer.level_files import merge_levels

QUICK = os.environ.get("BENCH") == "quick"
KEYS = 500_000 if QUICK else 8_000_000
RUNS = max(8, KEYS // 20 // 20_000)
COMMAND, SEED = "make bench", 7
KEPT = Path(__file__).resolve().parents[1] / "docs" / "benchmarks" / "state-costs.json"
JARS = Path(__file__).resolve().parents[1] / ".jars" / "spark"


def main() -> int:
    """Measures, prints one JSON object, and writes it to docs/benchmarks unless the run is a quick one."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as home:
        spark = open_session(
            SparkSettings(master="local[2]", jars=JARS, conf={"spark.driver.memory": "2g"}), "bench", 1
        )
        state = Synthetic(Path(home), KEYS)
        state.add_runs(RUNS, SEED)
        sys.stderr.write(f"{KEYS:,} keys, {RUNS} runs\n")
        found = reading(spark, state) | exporting(state, Path(home)) | compacting(spark, state)
        report = json.dumps(made_by(COMMAND, SEED) | {"keys": KEYS, "runs": RUNS} | found, indent=2) + "\n"
        sys.stdout.write(report)
        if not QUICK:
            KEPT.write_text(report)
        spark.stop()
    return 0


def reading(spark: SparkSession, state: Synthetic) -> dict[str, Any]:
    """Times a Spark scan, resolves in Spark SQL and its workers, resolves and point reads in DuckDB, and a reduce."""
    base = state.handle.segments[0]

    def scan() -> None:
        table = spark.read.format("delta").option("versionAsOf", str(base.version)).load(f"{state.root}/{base.path}")
        table.select("key", "updates", "amount", "last_at", "_changed").write.format("noop").mode("overwrite").save()

    def without_spark() -> None:
        read_state(str(state.root), state.schema, state.handle, NOW)

    held = pa.concat_tables(pq.read_table(path, partitioning=None) for path in state.paths)
    heap = held.select(["key", "updates", "amount", "last_at", "_changed"])

    def reduce() -> None:
        wanted = [("updates", "sum"), ("amount", "sum"), ("last_at", "max"), ("_changed", "max")]
        assert heap.group_by("key").aggregate(wanted).num_rows == KEYS

    keys = itertools.cycle(state.texts[:: max(1, KEYS // 50)].tolist())

    def point() -> None:
        assert read_state(str(state.root), state.schema, state.handle, NOW, (next(keys),)).num_rows == 1

    found = medians({"scan": scan, **_resolves(spark, state, keys), "point": point})
    found |= medians({"resolve_without_spark": without_spark, "reduce_in_memory": reduce}, 3)
    ways = ("resolve", "resolve_in_workers")
    return found | {f"{way}_to_scan": round(found[way] / found["scan"], 2) for way in ways}


def _resolves(spark: SparkSession, state: Synthetic, keys: Iterator[str]) -> dict[str, Callable[[], None]]:
    """Returns full resolves by Spark's SQL and its workers, and reads of one key by each, as `keys=` selects it."""

    def by_sql(**wanted: str) -> DataFrame:
        frame = resolve_state(warehouse_of(spark, state.root), state.schema, state.handle, NOW)
        return of_keys(frame, state.schema, key_choice(state.schema, wanted))

    def in_workers(**wanted: str) -> DataFrame:
        choice = key_choice(state.schema, wanted)
        reader = range_reader(str(state.root), state.schema, state.handle, NOW, choice)
        groups = chosen_groups(state.schema, choice)
        return resolved_by_ranges(spark, state.schema, state.handle.rows, reader, groups)

    def whole(frame: Callable[..., DataFrame]) -> None:
        frame().write.format("noop").mode("overwrite").save()

    def one(frame: Callable[..., DataFrame]) -> None:
        assert len(frame(key=next(keys)).collect()) == 1

    return {
        "resolve": partial(whole, by_sql),
        "resolve_in_workers": partial(whole, in_workers),
        "one_by_sql": partial(one, by_sql),
        "one_in_workers": partial(one, in_workers),
    }


def exporting(state: Synthetic, home: Path) -> dict[str, Any]:
    """Times `state export`, the states of `export`, and a plain copy of all stored rows, not merged, in one file."""
    names, shape = "key, updates, amount, last_at, _changed", arrow_schema(empty_columns(state.schema))
    plan = SimpleNamespace(schemas={"totals": state.schema})
    at: Any = SimpleNamespace(plan=plan, handles={"totals": state.handle}, now=NOW)

    def copy() -> None:
        with duckdb.connect() as db:
            files = ", ".join(f"'{path}'" for path in state.paths)
            rows = f"SELECT {names} FROM read_parquet([{files}], hive_partitioning = false)"
            db.execute(f"COPY ({rows}) TO '{home}/copy.parquet' (FORMAT parquet, COMPRESSION zstd)")

    def export() -> None:
        with open_rows_writer(home / "export.parquet", shape) as writer:
            for rows in stream_checkpoint(str(state.root), at, "totals"):
                writer.write_table(rows)

    def export_folder() -> None:
        folder = home / "folder"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        FolderExport(warehouse=str(state.root), folder=ParquetFolder(folder), checkpoint=at).state("totals", {})

    found = medians({"copy": copy, "export": export, "export_folder": export_folder}, 3)
    return found | {f"{way}_to_copy": round(found[way] / found["copy"], 2) for way in ("export", "export_folder")}


def compacting(spark: SparkSession, state: Synthetic) -> dict[str, Any]:
    """Times a compaction of the runs (the level-1 fold) and a rewrite of the whole base."""
    ids = (f"{n:032x}" for n in itertools.count(1))

    def log(step: str, moment: str) -> None:
        sys.stderr.write(f"{time.perf_counter():.2f} {step} {moment}\n")

    compactor = StateCompactor(
        merge=partial(merge_levels, str(state.root), footers=written_run),
        tables=state.tables,
        clock=ManualClock(),
        write_ids=lambda: next(ids),
        listener=log,
        put_job=lambda key, record: PutOutcome.WON,
        put_record=lambda key, record: PutOutcome.WON,
    )

    def compact(policy: LevelPolicy) -> None:
        task = CompactionTask(
            pipeline="bench",
            timeline="t1",
            checkpoint=state.handle.through,
            schema=state.schema,
            handle=state.handle,
            now=NOW,
            table=state.table,
            policy=policy,
        )
        assert compactor.compact(task) is not None

    levels = medians({"level_1": lambda: compact(LevelPolicy(ratio=0, space=math.inf))})
    full = medians({"full": lambda: compact(LevelPolicy.everything())}, 2)
    return levels | full | {"full_per_million_keys": round(full["full"] / KEYS * 1_000_000, 2)}


if __name__ == "__main__":
    sys.exit(main())
