"""What an operator leaves besides its state: dead letters, and what a process emits to a sink (J1, J16)."""

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
        The handle of its dead-letter table afterwards, and the commits that were made.
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
    """Writes and commits what goes to the table of the operator's sink: steps `emitted.<uid>` and `outputs.<uid>`.

    Another operator gets it from the batch.

    Returns:
        The handle of the sink's table afterwards, and the commits that were made.
    """
    table = steps.attempt.plan.sinks.get(uid)
    if table is None or not table.keeps_rows or not batch.counts[uid].emitted:
        return (StateHandle() if table is None else table.handle), ()
    run = steps.take(f"emitted.{uid}", lambda: batch.write_emitted(uid, steps.folder(table.path)))
    if not run.rows:
        return table.handle, ()  # a restored timeline that emits again what the sink has
    target = Target(uid=uid, table=table.path, handle=table.handle, schema=table.stored)
    done = steps.commit(f"outputs.{uid}", target, run)
    return extended(table.handle, done), (done.commit,)


def send(steps: Steps, batch: Batch, sender: Sender | None, skipped: Callable[[str], Collection[str]]) -> None:
    """Writes what goes to sinks that keep no rows, per operator in the batch's order: steps `sent.<uid>` (D9).

    Called once everything else of the attempt is done: what is sent cannot be taken back.

    Args:
        steps: of the attempt.
        batch: what it emitted.
        sender: reaches Kafka.
        skipped: per sink the ids of records that are left out.

    Raises:
        FencedError: the attempt was revoked.
        RecordRefusedError: Kafka refuses one record.
        BrokerError: not all was acknowledged.
        UsageError: a sink sends to Kafka, and there is no sender.
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
    """The dead-letter table of an operator, relative to the warehouse."""
    return f"{plan.pipeline}/dead_letters/{uid}/{plan.slot.timeline}"
