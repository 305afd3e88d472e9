"""Spark, its memory twin and DuckDB agree on state that queries wrote, and on what comes of it afterwards."""

import os
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from tests.support.spark import SparkPipeline, TwinPipeline
from tests.support.visits import PIPELINE, visits
from tidemark.coordinator.plans.restore_point import RestorePoint
from tidemark.coordinator.recovery.restore import Recovery
from tidemark.coordinator.recovery.savepoint_transform import Transformer, Transforming
from tidemark.engine.write.parquet_writer import written_run
from tidemark.model.checkpoint.manifest import Checkpoint, WrittenRun
from tidemark.model.retention.savepoint import SavepointRequest
from tidemark.model.state.evolution import ReplacedStates
from tidemark.storage.parquet_folder import ParquetFolder
from tidemark.transfer.transform_tables import SourceFiles, SourceState, StateQuery, transformed_rows

GROUPS = 16
QUERIES = {
    "people": "SELECT * REPLACE (if(visits % 2 = 0, who || '!', who) AS who) FROM people",
    "rooms": "SELECT * REPLACE (n + 1 AS n) FROM rooms WHERE n > 1 UNION ALL BY NAME FROM rooms WHERE n <= 1",
}


def test_spark_goes_on_with_states_that_queries_wrote(spark: SparkSession, tmp_path: Path) -> None:
    seed = int(os.environ.get("TIDEMARK_SEED", "0")) or random.randrange(2**32)
    print(f"TIDEMARK_SEED={seed}")
    chance = random.Random(seed)
    world, twin = TwinPipeline(PIPELINE), SparkPipeline(PIPELINE, spark=spark, root=tmp_path / "warehouse")
    for _ in range(2):
        records = visits(chance, 40)
        one, other = world.checkpoint(records), twin.checkpoint(records)
    before = {uid: twin.state(uid, other) for uid in QUERIES}
    one, other = _transformed(world, twin, (one, other), tmp_path)
    for uid in QUERIES:
        assert twin.state(uid, other) == world.state(uid, one), uid
        assert other.plan.schemas[uid].key_groups == GROUPS
    (who,) = (k.name for k in other.plan.schemas["people"].keys)
    assert {row[who] for row in twin.state("people", other)} == {
        row[who] + "!" * (row["visits"] % 2 == 0) for row in before["people"]
    }
    for there, made in ((world, one), (twin, other)):
        Recovery(coordinator=there.coordinator).restore(RestorePoint(checkpoint=made))
    for _ in range(2):
        records = visits(chance, 20)
        one, other = world.checkpoint(records), twin.checkpoint(records)
        for uid in QUERIES:
            assert twin.state(uid, other) == world.state(uid, one), f"{uid}, read on"
            assert other.plan.schemas[uid].key_groups == GROUPS


def _transformed(
    world: TwinPipeline, twin: SparkPipeline, sources: tuple[Checkpoint, Checkpoint], folder: Path
) -> tuple[Checkpoint, Checkpoint]:
    """The same transform in both: rows are made by DuckDB over what Spark wrote."""
    read = sources[1]
    scratch = ParquetFolder(folder / "scratch")
    scratch.path.mkdir()
    states = {
        uid: SourceState(schema=read.plan.schemas[uid], handle=read.handles[uid], now=read.now) for uid in QUERIES
    }
    files = SourceFiles(warehouse=str(twin.root), folder=scratch, states=states)

    def on_disk(uid: str, folder: str, number: int) -> WrittenRun:
        schema = replace(states[uid].schema, key_groups=GROUPS)
        at = read.now.of(schema.clock) or 0
        query = StateQuery(schema=schema, statement=QUERIES[uid], origin=uid, at_ms=at, frontier=None)
        with transformed_rows(files, query) as rows:
            assert rows.describe().refused == ()
            made = rows.write(ParquetFolder(twin.root), folder, number)
        return written_run(str(twin.root / folder), sum(f.rows or 0 for f in made), schema.bounded_columns)

    def in_memory(uid: str, folder: str, number: int) -> WrittenRun:
        found = on_disk(uid, f"aside/{folder}", number)
        rows: list[Any] = []
        for f in found.files:
            rows += pq.read_table(twin.root / f"aside/{folder}" / Path(f.path).name, partitioning=None).to_pylist()
        run: WrittenRun = world.tables.write(folder, rows)
        return run

    uids = frozenset(QUERIES)
    done = []
    for there, source, write in ((world, sources[0], in_memory), (twin, sources[1], on_disk)):
        wanted = Transforming(
            restore_point=RestorePoint(checkpoint=source, replaced=ReplacedStates(uids, uids, GROUPS)),
            pipeline=PIPELINE,
            timeline="rewritten",
            savepoint=SavepointRequest(name="rewritten", owner="me", origin="transform 1"),
            uids=tuple(QUERIES),
        )
        done.append(Transformer(coordinator=there.coordinator, tables=there.tables, write=write).transform(wanted)[0])
    return done[0], done[1]
