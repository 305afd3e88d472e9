"""A kill before and after every step of the checkpoint that redrives; a plain repetition then completes it."""

from dataclasses import replace

from tests.redrive.asking import ask, rows_of
from tests.redrive.redrive_walk import ASK, RELEASES, RedriveWorld
from tests.support.crashes import CrashAt, Killed
from tidemark.coordinator.checkpoints.loop import CheckpointLoop
from tidemark.declare.pipeline import Pipeline
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.core.offsets import TopicPartition

VALUES = (b'{"account":"a","amount":1,"kind":"x"}', b'{"account":"a","amount":2}', b"{")


def _checkpoint(world: RedriveWorld, pipeline: Pipeline, crash: CrashAt) -> Checkpoint:
    coordinator = replace(world.coordinator, listener=crash)
    job = world.checkpoint_job(world.compute_of(pipeline), crash)
    return CheckpointLoop(coordinator=coordinator, pipeline=pipeline, execute=job.execute).run_once(ASK).checkpoints[-1]


def _redriven(nth: int | None) -> tuple[CrashAt, Checkpoint, RedriveWorld]:
    """A redrive whose process is killed at its nth step, and then repeated."""
    world, crash = RedriveWorld(), CrashAt(nth)
    for value in VALUES:
        world.log.append(TopicPartition("payments", 0), value)
    first = _checkpoint(world, RELEASES["strict"], CrashAt(None))
    ask(world.coordinator, "sums", rows_of(first, "sums", world.tables), world.ids)
    try:
        made = _checkpoint(world, RELEASES["lenient"], crash)
    except Killed:
        newest = next(world.coordinator.checkpoints())
        made = newest if newest.id > first.id else _checkpoint(world, RELEASES["lenient"], CrashAt(None))
    return crash, made, world


def test_every_kill_is_repaired_by_a_plain_repetition() -> None:
    nth, seen = 1, []
    while True:
        crash, made, world = _redriven(nth)
        ack = made.ack("sums")
        assert ack is not None
        assert (ack.read, ack.redriven, ack.applied, ack.dead_lettered) == (0, 2, 1, 1), crash.at
        (row,) = world.compute_of(RELEASES["lenient"]).resolve(made, "sums").values()
        assert (row["records"], row["total"]) == (2, 3), crash.at
        assert len(rows_of(made, "sums", world.tables)) == 1, crash.at
        if not crash.at[0]:
            break
        seen.append(crash.at)
        nth += 1
    assert {("plan", "after"), ("fold.sums", "after"), ("commit.sinks.sums", "after"), ("seal", "after")} <= set(seen)
