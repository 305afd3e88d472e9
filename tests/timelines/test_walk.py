"""Hundreds of steps in memory; `tests/process/test_timelines.py` takes some on Spark. A failure prints its seed."""

import pytest

from tests.support.spark import TwinPipeline
from tests.support.timeline_walk import PIPELINE, TWO_OUTPUTS, TimelineWalk
from tidemark import Pipeline
from tidemark.model.checkpoint.emitted import EmittedRecords

SEEDS = range(5)
STEPS = 200


def walked(seed: int, steps: int = STEPS, pipeline: Pipeline = PIPELINE) -> TimelineWalk:
    """A walk in memory, compared with its oracle on the way and at the end."""
    walk = TimelineWalk(TwinPipeline(pipeline), seed)
    try:
        walk.steps(steps)
        walk.compare_all()
    except BaseException:
        print(f"seed {seed}", *walk.trace[-30:], sep="\n")
        raise
    return walk


@pytest.mark.parametrize("seed", SEEDS)
def test_a_walk_over_timelines_is_what_plain_dicts_say(seed: int) -> None:
    walk = walked(seed)
    assert len(walk.oracle.lines) > 5
    assert len(walk.oracle.snapshots) > 20


@pytest.mark.parametrize("seed", SEEDS[:2])
def test_every_sink_of_several_outputs_has_each_row_once(seed: int) -> None:
    walk = walked(seed, pipeline=TWO_OUTPUTS)
    newest = walk.world.coordinator.checkpoint(max(walk.oracle.snapshots))
    assert list(newest.plan.sinks) == ["teller", "teller.copied"]


def test_a_walk_finds_a_sink_that_doubles_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EmittedRecords, "lacks", lambda self, covered: lambda row: True)
    with pytest.raises(AssertionError, match="a row is duplicated"):
        for seed in SEEDS:
            walked(seed)
