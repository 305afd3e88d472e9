"""Declarations that change between checkpoints on Spark: Spark, DuckDB and a replay of everything agree.

`TIDEMARK_TEST_SEED` repeats one run.
"""

import math
import os
import random
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.support.evolving_pipelines import PipelineHistory, encoded
from tests.support.spark import SparkPipeline
from tests.support.spark_warehouse import merge_both_ways
from tidemark.coordinator.checkpoints.state_compactor import CompactionTask, StateCompactor
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.store_objects import CompactionRecord
from tidemark.model.state.compaction import LevelPolicy

SEED = int(os.environ.get("TIDEMARK_TEST_SEED", random.randrange(2**32)))
CASES = 2
CHECKPOINTS = 4


def _compact(world: SparkPipeline, found: Checkpoint, uid: str, ratio: int) -> CompactionRecord | None:
    put = world.coordinator.objects.put
    compactor = StateCompactor(
        merge=merge_both_ways(world.spark, world.root),
        tables=world.tables,
        clock=world.clock,
        write_ids=world.ids,
        listener=lambda step, moment: None,
        put_job=put,
        put_record=put,
    )
    task = CompactionTask(
        pipeline=world.pipeline.name,
        timeline=found.plan.slot.timeline,
        checkpoint=found.id,
        schema=found.plan.schemas[uid],
        handle=found.handles[uid],
        now=found.now,
        table=found.plan.tables[uid],
        policy=LevelPolicy(runs=1, ratio=ratio, space=math.inf),
    )
    return compactor.compact(task)


def _plain(history: PipelineHistory, uid: str, rows: list[dict[str, Any]]) -> dict[tuple[str], dict[str, Any]]:
    names = [f.name for f in history.fields[uid]]
    return {(row["key"],): {name: row[name] for name in names} for row in rows}


def test_rows_of_every_declaration_are_read_and_compacted_alike(spark: SparkSession, tmp_path: Path) -> None:
    print(f"TIDEMARK_TEST_SEED={SEED}")
    adopted = layouts = 0
    for case in range(CASES):
        chance = random.Random(SEED + case)
        history = PipelineHistory(chance)
        world = SparkPipeline(history.pipeline(), partitions=1, spark=spark, root=tmp_path / str(case))
        told: list[tuple[Checkpoint, str, Any]] = []
        for n in range(CHECKPOINTS):
            if n:
                history.change()
            world.pipeline = history.pipeline()
            found = world.checkpoint(map(encoded, history.send()))
            adopted += len(found.plan.adopted)
            for uid in history.kinds:
                layouts += len(found.plan.schemas[uid].older)
                told.append((found, uid, history.expected(uid)))
                assert _plain(history, uid, world.state(uid, found)) == told[-1][2], f"{case}, {found.plan.name}, {uid}"
                if found.handles[uid] and chance.random() < 0.6:
                    _compact(world, found, uid, chance.choice([0, 2**62]))
        for found, uid, right in told[: 2 * (CHECKPOINTS - 1)]:
            names = [f.name for f in found.plan.schemas[uid].fields]
            rows = {(r["key"],): {name: r[name] for name in names} for r in world.state(uid, found)}
            assert rows == right, f"{case}: {found.plan.name}, {uid}, as it is read today"
    assert adopted
    assert layouts
