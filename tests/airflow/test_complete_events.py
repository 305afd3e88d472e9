"""Task `complete` adds events of checkpoints that a sweep has released before it ran."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support.bank import ASK
from tests.support.retention import MemoryRetentionPipeline
from tidemark import Retention
from tidemark.coordinator.checkpoints.loop import CheckpointLoop
from tidemark.coordinator.records.states import Completed, OpenPlan, SealedPlan
from tidemark.errors import ReleasedError
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.operations import reads, runs

pytestmark = [pytest.mark.airflow, pytest.mark.usefixtures("airflow_home")]


def test_a_piece_that_was_released_meanwhile_does_not_fail_the_task() -> None:
    from tidemark.airflow.checkpoint_tasks import CompleteOperator

    line = MemoryRetentionPipeline()
    line.pipeline = replace(line.pipeline, max_records=2)
    opened: Any = SimpleNamespace(
        coordinator=lambda name: line.coordinator,
        require_pipeline=lambda name: name,
        store=lambda name: line.coordinator.objects.store,
        clock=line.clock,
    )
    runs.record_announced(opened, line.name, line.checkpoint("a").id)
    line.pay(*"abcdefg")
    loop = CheckpointLoop(coordinator=line.coordinator, pipeline=line.pipeline, execute=line.run)
    request = replace(ASK, run="dag/1")
    planned = loop.plan(request).state
    assert isinstance(planned, OpenPlan)

    def sweep(made: Checkpoint) -> None:
        line.clock.advance(3_600_000)
        line.sweep(Retention.keep_last(2))

    folded = replace(loop, on_completed=sweep).fold(planned.plan, request).state
    assert isinstance(folded, SealedPlan)
    done = loop.complete(folded.plan)
    assert isinstance(done, Completed)
    names = [f"chk-{n}" for n in runs.list_unannounced(opened, done.checkpoint)]
    assert names == ["chk-2", "chk-3", "chk-4", "chk-5"]
    with pytest.raises(ReleasedError):
        reads.get_checkpoint(opened, line.name, 2)
    task = cast("CompleteOperator", SimpleNamespace(pipeline=line.name, changed=[], outlets=[]))
    CompleteOperator._announce_changed(task, cast("Any", {}), opened, done.checkpoint, names)
