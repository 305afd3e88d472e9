"""Spark, its memory twin and DuckDB agree on state that was patched, and on what comes of it afterwards."""

import os
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from tests.support.spark import SparkPipeline, TwinPipeline
from tests.support.visits import PIPELINE, visits
from tidemark.coordinator.plans.restore_point import RestorePoint
from tidemark.coordinator.recovery.restore import Recovery
from tidemark.coordinator.recovery.savepoint_transform import Transformer, Transforming, mark_patched
from tidemark.engine.write.parquet_writer import written_run
from tidemark.model.checkpoint.manifest import Checkpoint, WrittenRun
from tidemark.model.retention.savepoint import SavepointRequest
from tidemark.readers.state_reader import read_state
from tidemark.storage.parquet_folder import ParquetFolder
from tidemark.transfer.patch_tables import GivenPatch, patch_rows

UIDS = ("people", "rooms")


def test_spark_the_memory_twin_and_duckdb_agree_on_what_was_patched(spark: SparkSession, tmp_path: Path) -> None:
    seed = int(os.environ.get("TIDEMARK_SEED", "0")) or random.randrange(2**32)
    print(f"TIDEMARK_SEED={seed}")
    chance = random.Random(seed)
    world, twin = TwinPipeline(PIPELINE), SparkPipeline(PIPELINE, spark=spark, root=tmp_path / "warehouse")
    for _ in range(2):
        records = visits(chance, 40)
        one, other = world.checkpoint(records), twin.checkpoint(records)
    given = {uid: _given(twin, other, uid, tmp_path, chance) for uid in UIDS}
    one, other = _patched(world, twin, (one, other), given)
    assert [s.patched for s in (other.plan.schemas[uid] for uid in UIDS)] == [0, other.id], "a fold's readers must know"
    for uid in UIDS:
        assert twin.state(uid, other) == world.state(uid, one), uid
        for deepest in (False, True):
            compacted = world.compacted(uid, one, deepest=deepest)
            assert twin.compacted(uid, other, deepest=deepest) == compacted, uid
    for there, patch in ((world, one), (twin, other)):
        Recovery(coordinator=there.coordinator).restore(RestorePoint(checkpoint=patch))
    records = visits(chance, 20)
    one, other = world.checkpoint(records), twin.checkpoint(records)
    for uid in UIDS:
        assert twin.state(uid, other) == world.state(uid, one), f"{uid}, read on"


def _given(twin: SparkPipeline, checkpoint: Checkpoint, uid: str, folder: Path, chance: random.Random) -> GivenPatch:
    """Keys get the whole state of other keys, one of them is new; and some are deleted."""
    schema, handle = checkpoint.plan.schemas[uid], checkpoint.handles[uid]
    keys = [k.name for k in schema.keys]
    found = read_state(str(twin.root), schema, handle, checkpoint.now).drop_columns(["_changed"])
    order = list(range(found.num_rows))
    chance.shuffle(order)
    gone = max(1, len(order) // 4)
    values, deletes = folder / f"{uid}.set.parquet", folder / f"{uid}.gone.parquet"
    pq.write_table(found.take(order[:gone]).select(keys), deletes)
    held, named = order[gone:], order[gone + 1 :] + order[gone : gone + 1]
    rows = found.take(held)
    for at, name in enumerate(keys):
        column = found[name].take(named)
        if pa.types.is_string(column.type):
            column = pa.chunked_array([pa.array(["zoe", *column.to_pylist()[1:]], column.type)])
        rows = rows.set_column(at, found.schema.field(name), column)
    pq.write_table(rows, values)
    now = checkpoint.now.of(schema.clock)
    assert now is not None
    return GivenPatch(
        schema=mark_patched(schema, checkpoint.id + 1),
        handle=handle,
        now=checkpoint.now,
        at_ms=now,
        values=str(values),
        deletes=str(deletes),
    )


def _patched(
    world: TwinPipeline, twin: SparkPipeline, sources: tuple[Checkpoint, Checkpoint], given: dict[str, GivenPatch]
) -> tuple[Checkpoint, Checkpoint]:
    """The same patch in both: rows are made by DuckDB over what Spark wrote."""

    def on_disk(uid: str, folder: str, number: int) -> WrittenRun:
        with patch_rows(str(twin.root), given[uid]) as made:
            files = made.write(ParquetFolder(twin.root), folder, number)
        rows = sum(f.rows or 0 for f in files)
        return written_run(str(twin.root / folder), rows, given[uid].schema.bounded_columns)

    def in_memory(uid: str, folder: str, number: int) -> WrittenRun:
        with patch_rows(str(twin.root), given[uid]) as made:
            files = made.write(ParquetFolder(twin.root), f"aside/{number}/{uid}", number)
        rows: list[Any] = [r for f in files for r in pq.read_table(twin.root / f.path).to_pylist()]
        run: WrittenRun = world.tables.write(folder, rows)
        return run

    done = []
    for there, source, write in ((world, sources[0], in_memory), (twin, sources[1], on_disk)):
        wanted = Transforming(
            restore_point=RestorePoint(checkpoint=source),
            pipeline=PIPELINE,
            timeline="fixed",
            savepoint=SavepointRequest(name="fixed", owner="me", origin="patch 1"),
            uids=UIDS,
        )
        patcher = Transformer(coordinator=there.coordinator, tables=there.tables, write=write)
        done.append(patcher.transform(wanted)[0])
    return done[0], done[1]
