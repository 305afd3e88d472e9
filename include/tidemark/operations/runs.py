"""The progress of runs that make several checkpoints."""

from tidemark.answers.run_facts import RunFacts
from tidemark.context import Context
from tidemark.coordinator.plans.runs import newest_run
from tidemark.model.checkpoint.manifest import Checkpoint
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
