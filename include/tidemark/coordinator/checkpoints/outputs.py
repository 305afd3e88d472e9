"""The outputs of an operator other than its state: dead letters, and the rows that a process emits to a sink."""

from collections.abc import Callable, Collection
from functools import partial

from tidemark.coordinator.checkpoints.steps import Steps, Target, extended
from tidemark.model.checkpoint.manifest import Commit
from tidemark.model.checkpoint.messages import commit_id, emitted_rows
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.checkpoint.segments import StateHandle
from tidemark.ports import Batch, Sender
from tidemark.sinks.sink import Services

DEAD_LETTER_COLUMNS: tuple[tuple[str, str], ...] = (
    ("topic", "STRING"),
    ("partition", "INT"),
    ("offset", "BIGINT"),
    ("timestamp", "TIMESTAMP"),
    ("uid", "STRING"),
    ("reason", "STRING"),
    ("key", "BINARY"),
    ("value", "BINARY"),
)
"""Columns of a dead-letter table, before its partition columns."""


def dead_letters(steps: Steps, batch: Batch, uid: str) -> tuple[StateHandle, tuple[Commit, ...]]:
    """Writes and commits an operator's dead letters: steps `dead_letters.<uid>` and `sinks.<uid>`.

    Returns:
        The handle of the operator's dead-letter table afterwards, and the commits that were made.
    """
    plan = steps.attempt.plan
    parent = plan.dead_letters[uid]
    if not batch.counts[uid].dead_lettered:
        return parent, ()
    table = dead_letters_table(plan, uid)
    run = steps.take(f"dead_letters.{uid}", lambda: batch.write_dead_letters(uid, steps.folder(table)))
    done = steps.commit(f"sinks.{uid}", Target(uid=uid, table=table, handle=parent, schema=DEAD_LETTER_COLUMNS), run)
    return extended(parent, done), (done.commit,)


def emitted(steps: Steps, batch: Batch, uid: str) -> tuple[StateHandle, tuple[Commit, ...]]:
    """Writes and commits the rows for the table of the operator's sink: steps `emitted.<uid>` and `outputs.<uid>`.

    Rows emitted to another operator are not written; that operator gets them from the batch.

    Returns:
        The handle of the sink's table afterwards, and the commits that were made.
    """
    table = steps.attempt.plan.sinks.get(uid)
    if table is None or not table.keeps_rows or not batch.counts[uid].emitted:
        return (StateHandle() if table is None else table.handle), ()
    run = steps.take(f"emitted.{uid}", lambda: batch.write_emitted(uid, steps.folder(table.path)))
    if not run.rows:
        return table.handle, ()  # a restored timeline emits only rows that the sink has
    target = Target(uid=uid, table=table.path, handle=table.handle, schema=table.stored)
    done = steps.commit(f"outputs.{uid}", target, run)
    return extended(table.handle, done), (done.commit,)


def send(steps: Steps, batch: Batch, sender: Sender | None, skipped: Callable[[str], Collection[str]]) -> None:
    """Writes to sinks that keep no rows, per operator in the batch's order: steps `sent.<uid>`.

    Called after every other step of the attempt, because sent records cannot be taken back.

    Args:
        steps: steps of the attempt.
        batch: the batch with the emitted rows.
        sender: connection to Kafka.
        skipped: returns, per sink, the ids of the records to leave out.

    Raises:
        FencedError: the attempt was revoked.
        RecordRefusedError: Kafka refused a record.
        BrokerError: Kafka did not acknowledge every record.
        UsageError: a sink sends to Kafka, but there is no sender.
    """
    plan, services = steps.attempt.plan, Services(kafka=sender)
    for uid in batch.uids:
        table = plan.sinks.get(uid)
        sink = None if table is None or table.keeps_rows or not batch.counts[uid].emitted else table.sink
        if table is None or sink is None:
            continue
        lacks = partial(table.lacks, topic_ids=plan.topic_ids)
        rows = (r for r in batch.emitted(uid) if lacks(r["_topic"], r["_partition"], r["_offset"]))
        left = emitted_rows(plan, table, rows, skipped(table.name))
        steps.take(f"sent.{uid}", partial(sink.write, left, commit_id(plan), services))


def dead_letters_table(plan: CheckpointPlan, uid: str) -> str:
    """Path of an operator's dead-letter table, relative to the warehouse."""
    return f"{plan.pipeline}/dead_letters/{uid}/{plan.slot.timeline}"
