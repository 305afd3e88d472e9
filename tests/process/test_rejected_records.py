"""A record that several operators reject is one dead letter of the checkpoint: in memory and in Spark."""

import os
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.support.spark import SparkPipeline, TwinPipeline
from tests.support.visits import DAY, PIPELINE, Visit, visits
from tidemark import Fold, Pipeline, state
from tidemark.model.checkpoint.manifest import Checkpoint

Twin = Callable[[Pipeline], TwinPipeline]


class Count(state.Keyed):
    """A fold."""

    n: int = state.count()


FOLDS = replace(
    PIPELINE,
    operators=[Fold("by_who", key_by="who", state=Count), Fold("by_room", key_by="room", state=Count)],
)
NOBODY = Visit(who=None, room=1, at=DAY)
ANN = Visit(who="ann", room=1, at=DAY)
LUCKLESS = Visit(who="ann", room=13, at=DAY)
NO_ROOM = Visit(who="ann", room=4, at=DAY)


@pytest.fixture(params=["memory", "spark"])
def twin(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Twin:
    """Makes a world of either kind."""
    if request.param == "memory":
        return TwinPipeline
    return lambda pipeline: SparkPipeline(pipeline, spark=spark, root=tmp_path)


def counted(world: TwinPipeline, done: Checkpoint) -> tuple[int, int]:
    """By the tables of dead letters: how many offsets were rejected, and how many rejections there were."""
    rows: list[Any] = [row for ack in done.sealed.acks for row in world.letters(ack.uid, done)]
    return len({(row["topic"], row["partition"], row["offset"]) for row in rows}), len(rows)


@pytest.mark.parametrize(
    ("pipeline", "records", "rejected", "rejections"),
    [
        (FOLDS, [ANN, ANN], 0, 0),
        (FOLDS, [b"{", ANN, b"{", None], 3, 6),
        (FOLDS, [b"{", ANN, NOBODY], 2, 3),
        (PIPELINE, [ANN, LUCKLESS, b"{", NOBODY], 3, 3),
        (PIPELINE, [NO_ROOM, ANN], 1, 2),
        (PIPELINE, [NO_ROOM, LUCKLESS, b"{"], 3, 4),
    ],
    ids=["none", "not decoded", "shared and own", "a function fails", "behind a process", "all of it"],
)
def test_a_record_counts_once(
    twin: Twin, pipeline: Pipeline, records: list[Any], rejected: int, rejections: int
) -> None:
    world = twin(pipeline)
    done = world.checkpoint(records)
    assert counted(world, done) == (rejected, rejections)
    assert (done.sealed.rejected, done.sealed.dead_lettered, done.sealed.dead_lettered_at_most) == (
        rejected,
        rejected,
        False,
    )
    assert sum(ack.dead_lettered for ack in done.sealed.acks) == rejections, "per operator it stays per operator"


def test_the_count_is_that_of_the_offsets_whatever_is_sent(twin: Twin) -> None:
    seed = int(os.environ.get("TIDEMARK_SEED", "0")) or random.randrange(2**32)
    print(f"TIDEMARK_SEED={seed}")
    world = twin(PIPELINE)
    done = world.checkpoint(visits(random.Random(seed), 60))
    assert done.sealed.rejected == counted(world, done)[0]
