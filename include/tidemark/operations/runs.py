"""Runs that make several checkpoints: how far they are, and which checkpoints Airflow has no event of.

A task adds events only if it succeeds, so a run that fails adds none, although some of its checkpoints are complete.
"""

from itertools import takewhile

from tidemark.answers.run_facts import RunFacts
from tidemark.context import Context
from tidemark.coordinator.plans.runs import newest_run
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.store_objects import AnnouncementRecord
from tidemark.operations import observability


def describe(context: Context, made: Checkpoint) -> RunFacts | None:
    """Returns how far the run of a checkpoint had come with it; None if the run makes only one.

    Raises:
        StoreError, CorruptObjectError: the store could not be read.
    """
    plan = made.plan
    coordinator = context.coordinator(plan.pipeline)
    record = newest_run(coordinator.objects, plan.run) if plan.run else None
    if record is None:
        return None
    done = total = 0
    for tp, end in record.ends.items():
        begun = record.starts.get(tp, end)
        total += end - begun
        if tp in plan.ranges:
            done += max(0, min(plan.ranges[tp].end, end) - begun)
    seconds = max(0.001, (observability.sealed_ms(coordinator, plan, made.sealed) - record.at_ms) / 1000)
    rate = done / seconds
    return RunFacts(
        run=record.run,
        checkpoint=plan.name,
        done=done,
        total=total,
        share=done / total if total else 1.0,
        per_second=rate,
        seconds_left=(total - done) / rate if done else None,
    )


def list_unannounced(context: Context, newest: Checkpoint) -> list[int]:
    """Returns the ids of a checkpoint and of its ancestors after the last announced one, oldest first.

    Released checkpoints are included. Without any record, those of runs: release 0.1 left no records, and made none.
    """
    coordinator = context.coordinator(newest.plan.pipeline)
    last = keys.greatest(coordinator.objects.list("announcements/"))
    ancestry = coordinator.timelines.ancestry(newest)
    since = takewhile(lambda found: found.id > last if last else bool(found.plan.run), ancestry)
    return sorted({newest.id, *(found.id for found in since)})


def record_announced(context: Context, name: str, checkpoint: int) -> None:
    """Records that a checkpoint and all before it are announced; a repeated call changes nothing."""
    coordinator = context.coordinator(name)
    record = AnnouncementRecord(
        checkpoint=checkpoint, at_ms=coordinator.clock.now_ms(), write_id=coordinator.write_ids()
    )
    coordinator.objects.put(keys.announcement_key(checkpoint), record)
