"""Runs that make several checkpoints: how far they are, their backlog, and the checkpoints Airflow has no event of.

A task adds events only if it succeeds, so a run that fails adds none, although some of its checkpoints are complete.
"""

import math
from collections.abc import Iterable
from itertools import takewhile

from tidemark.answers.checkpoint_facts import iso
from tidemark.answers.run_facts import BacklogFacts, PartitionBacklog, RunFacts
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


def describe_backlog(context: Context, name: str) -> BacklogFacts:
    """Returns how far the live timeline is behind its topics, and the progress of a run that makes several checkpoints.

    Raises:
        NotFoundError: no such pipeline.
        StoreError, CorruptObjectError: the store could not be read.
    """
    coordinator = context.coordinator(name)
    newest = next(coordinator.checkpoints(), None)
    if newest is None:
        return BacklogFacts(
            checkpoint=None, planned_at=None, lag=0, run=None, ends_at=None, checkpoints=0, checkpoints_left=None,
            bytes_left=None, reduced_to=0, partitions=[],
        )  # fmt: skip
    plan = newest.plan
    record = newest_run(coordinator.objects, plan.run) if plan.run and not plan.covers else None
    run = None if record is None else describe(context, newest)
    made = [] if record is None else _made_by(coordinator.checkpoints(), plan.run, record.at_ms)
    offsets = sum(sum(r.span for r in found.plan.ranges.values()) for found in made)
    left = 0 if run is None else run.total - run.done
    seconds = None if run is None else run.seconds_left
    return BacklogFacts(
        checkpoint=plan.name,
        planned_at=iso(plan.planned_at_ms),
        lag=sum(plan.pending.values()),
        run=run,
        ends_at=None
        if seconds is None
        else iso(observability.sealed_ms(coordinator, plan, newest.sealed) + round(1000 * seconds)),
        checkpoints=len(made),
        checkpoints_left=math.ceil(left * len(made) / offsets) if offsets else None,
        bytes_left=round(left * sum(found.sealed.facts.bytes for found in made) / offsets) if offsets else None,
        reduced_to=plan.reduced_to,
        partitions=[
            PartitionBacklog(
                partition=str(tp),
                position=within.end,
                lag=plan.pending.get(tp, 0),
                run_start=None if record is None or tp not in record.ends else record.starts.get(tp, record.ends[tp]),
                run_end=None if record is None else record.ends.get(tp),
            )
            for tp, within in sorted(plan.ranges.items())
        ],
    )


def _made_by(line: Iterable[Checkpoint], run: str, since_ms: int) -> list[Checkpoint]:
    """The checkpoints of a line, newest first, that a run has made since a time."""
    later = takewhile(lambda found: found.plan.planned_at_ms >= since_ms, line)
    return [found for found in later if found.plan.run == run]


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
