"""Cost of retention at many checkpoints: `python -m benchmarks.retention_costs [COUNT]`.

Every checkpoint is a real one on disk; in-memory twins replace Kafka and Spark. Plans are timed in new contexts, like
those of DAG tasks: without the host's index, with the index that an earlier plan has stored, and after one more
checkpoint. The bytes that a sweep frees are reported next to the result of an independent replay of the logs, and
Delta's VACUUM deletes the same files in a copy of the warehouse. The figures are printed as one JSON object and
published in docs/benchmarks.
"""

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from pyspark.sql import SparkSession

from benchmarks.needed import named
from benchmarks.report import FOLDER
from benchmarks.state_costs import JARS
from tests.airflow.pipelines.trips import Bus, Trip
from tests.support.disk import DiskPipeline
from tidemark import Fold, KafkaSource, Pipeline
from tidemark.context import Context, open_context
from tidemark.coordinator.records import objects
from tidemark.engine.session.session import SparkSettings, open_session
from tidemark.model.retention.deletion import DeletionPlan
from tidemark.operations import reads, retention
from tidemark.settings import load_settings
from tidemark.testing.twin.memory import ManualClock

RIDES = Pipeline(
    name="rides",
    source=KafkaSource("trips", Trip, event_time="ended_at"),
    operators=[Fold("buses", key_by="bus", state=Bus)],
)
COUNT, KEEP, EVERY, TIMES = 1000, 30, 40, 3
"""The number of checkpoints, how many the rule keeps, the interval of full compactions, and the tries of a plan."""
RULE = f"keep_last({KEEP})"
WEEK_MS = 7 * 86_400_000
T = TypeVar("T")


def main() -> int:
    """Measures retention and prints the figures as JSON."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else COUNT
    with tempfile.TemporaryDirectory(prefix="tidemark-retention-") as folder:
        root = Path(folder, "warehouse")
        # VACUUM deletes only files whose removal in the log lies in the past, so the log is written a day back.
        yesterday = ManualClock(int((time.time() - 86_400) * 1000))
        line = DiskPipeline(root, RIDES, "trips", partitions=4, clock=yesterday)
        for number in range(1, count + 1):
            checkpoint(line, number)
        os.environ["TIDEMARK_WAREHOUSE"] = str(root)
        facts = {"checkpoints": count, "keeps": KEEP, "cores": os.cpu_count()} | measured(line, root, count)
    report = json.dumps(facts, indent=2) + "\n"
    sys.stdout.write(report)
    if count == COUNT:
        (FOLDER / "retention-costs.json").write_text(report)
    return 0


def checkpoint(line: DiskPipeline, number: int) -> None:
    """Completes a checkpoint of forty records; one in `EVERY` is followed by a full compaction."""
    rows = (json.dumps({"bus": f"b{n}", "miles": n, "ended_at": "2024-05-01T00:00:00Z"}) for n in range(40))
    line.send([(n % 4, value.encode(), n) for n, value in enumerate(rows)])
    line.checkpoint()
    if number % EVERY == 0:
        line.compact("buses", full=True)


def measured(line: DiskPipeline, root: Path, count: int) -> dict[str, Any]:
    """Times plans and sweeps, and counts the bytes that the sweeps should free."""
    plan, plans = planned(line, root, count)
    opened = context(root)
    wanted = sum(unneeded(root, opened).values())
    copy = root.with_name("copy")
    shutil.copytree(root, copy)
    released, releasing = timed(lambda: retention.sweep(context(root), RIDES.name, RULE, grace_ms=WEEK_MS))
    swept, deleting = timed(lambda: retention.sweep(context(root), RIDES.name, RULE, grace_ms=0))
    left, after = timed(lambda: retention.plan_sweep(context(root), RIDES.name, RULE))
    assert not left.free, "a second sweep would have something to do"
    return {
        "files": plan.kept_files + len(plan.free),
        **plans,
        "released": len(released.released),
        "sweep_that_releases_s": releasing,
        "sweep_that_deletes_s": deleting,
        "deleted_files": len(swept.deleted),
        "deleted_bytes": swept.bytes,
        "unneeded_bytes": wanted,
        "deleted_log_files": swept.log_files,
        "plan_after_the_sweep_s": after,
        "by_vacuum": by_vacuum(copy, swept.plan),
    }


def planned(line: DiskPipeline, root: Path, count: int) -> tuple[DeletionPlan, dict[str, float]]:
    """Times plans of an unchanged history (the best of some tries, because they are short), then of a longer one."""

    def best(opened: Callable[[], Context]) -> tuple[DeletionPlan, float]:
        made = [timed(lambda: retention.plan_sweep(opened(), RIDES.name, RULE)) for _ in range(TIMES)]
        return made[0][0], min(spent for _, spent in made)

    def cold() -> Context:
        objects.decode.cache_clear()
        shutil.rmtree(root.parent / ".tidemark", ignore_errors=True)
        return context(root)

    plan, first = best(cold)
    again, second = best(lambda: context(root))
    same = context(root)
    retention.plan_sweep(same, RIDES.name, RULE)
    _, third = best(lambda: same)
    assert again == replace(plan, now_ms=again.now_ms), "the plan from the host's index differs from the first plan"
    checkpoint(line, count + 1)
    _, fourth = timed(lambda: retention.plan_sweep(context(root), RIDES.name, RULE))
    checkpoint(line, count + 2)
    _, fifth = timed(lambda: retention.plan_sweep(same, RIDES.name, RULE))
    return plan, {
        "plan_cold_s": first,
        "plan_again_s": second,
        "plan_again_in_the_same_process_s": third,
        "plan_after_one_more_checkpoint_s": fourth,
        "plan_after_one_more_checkpoint_in_the_same_process_s": fifth,
    }


def unneeded(root: Path, opened: Context) -> dict[Path, int]:
    """The data files that no kept checkpoint names, with their bytes, found by a plain replay of the logs."""
    kept = list(reads.list_checkpoints(opened, RIDES.name))[:KEEP]
    needed = {path for found in kept for path in named(root, found)}
    data = (p for p in (root / RIDES.name).rglob("*.parquet") if "_delta_log" not in p.parts)
    return {path: path.stat().st_size for path in data if path not in needed}


def by_vacuum(root: Path, plan: DeletionPlan) -> dict[str, Any]:
    """Deletes the same files with `VACUUM ... USING INVENTORY` in a warm session, one call per table."""
    tables: dict[str, list[tuple[str, int]]] = {}
    for f in plan.free:
        table = next(p for p in Path(f.path).parents if (root / p / "_delta_log").is_dir())
        tables.setdefault(str(table), []).append((f"file:{root}/{f.path}", f.bytes))
    with session() as spark:
        for name in tables:
            spark.read.format("delta").load(f"{root}/{name}").count()

        def vacuum_all() -> None:
            for name, files in tables.items():
                vacuum(spark, f"{root}/{name}", files)

        _, spent = timed(vacuum_all)
    left = sum((root / f.path).exists() for f in plan.free)
    return {"tables": len(tables), "s": spent, "files_left": left}


def vacuum(spark: SparkSession, table: str, files: list[tuple[str, int]]) -> None:
    """Deletes the listed files of a table."""
    rows = [(path, size, False, 0) for path, size in files]
    schema = "path string, length long, isDir boolean, modificationTime long"
    spark.createDataFrame(rows, schema).createOrReplaceTempView("inventory")
    spark.sql(f"VACUUM delta.`{table}` USING INVENTORY (SELECT * FROM inventory) RETAIN 0 HOURS")


@contextmanager
def session() -> Iterator[SparkSession]:
    """A separate Spark session whose VACUUM needs no retention period."""
    delta = "spark.databricks.delta"
    conf = {
        "spark.driver.memory": "2g",
        f"{delta}.retentionDurationCheck.enabled": "false",
        f"{delta}.vacuum.logging.enabled": "false",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
        "spark.sql.shuffle.partitions": "2",
    }
    spark = open_session(SparkSettings(master="local[2]", jars=JARS, conf=conf), "bench", 1)
    try:
        yield spark
    finally:
        spark.stop()


def context(root: Path) -> Context:
    """Opens a new context, which has read nothing yet."""
    return open_context(load_settings(root=str(root.parent)))


def timed(call: Callable[[], T]) -> tuple[T, float]:
    """Returns the result of a call and its seconds."""
    begun = time.perf_counter()
    told = call()
    return told, round(time.perf_counter() - begun, 3)


if __name__ == "__main__":
    sys.exit(main())
