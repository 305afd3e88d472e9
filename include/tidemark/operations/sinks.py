"""Sinks: reads one as of a checkpoint, sends and lists what waits in outboxes, skips a record."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import structlog

from tidemark.answers.sink_facts import (
    LastDeliveryFailure,
    SinkStatus,
    SkipFacts,
    SkippedRecordFacts,
    WaitingRecords,
)
from tidemark.context import Context
from tidemark.coordinator.checkpoints.backlog import SinkBacklog, backlogs, refusal_to_skip, skip
from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.checkpoints.deliveries import delivered, is_live, undelivered
from tidemark.coordinator.plans.sent_offsets import Undelivered
from tidemark.coordinator.records.refusal_records import Refusals
from tidemark.errors import NotFoundError, RecordRefusedError, TidemarkError
from tidemark.lazy import lazily
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.messages import EmittedRow, RecordPlace, commit_id, emitted_rows
from tidemark.model.checkpoint.refused_records import DeliveryFailure, SkippedRecord
from tidemark.model.checkpoint.sinks import SinkTable
from tidemark.model.core.timestamps import iso, iso_or_none
from tidemark.operations import reads
from tidemark.sinks.known_sinks import traits_of
from tidemark.sinks.outbox import Outbox
from tidemark.sinks.sink import Services

if TYPE_CHECKING:
    import pyarrow as pa


def list_sinks(context: Context, name: str) -> list[SinkStatus]:
    """The sinks of a pipeline with the records that wait to be sent.

    Raises:
        NotFoundError: no such pipeline.
    """
    return [_status(found) for found in backlogs(context.coordinator(context.require_pipeline(name)))]


def skip_record(context: Context, name: str, sink: str, record: str, owner: str = "", note: str = "") -> SkipFacts:
    """Skips a record that Kafka refuses from now on; without an owner this is a dry run.

    Raises:
        UsageError: that is no id of an emitted record.
        NotFoundError: Kafka has refused no such record of the sink.
        ConflictError: the record does not wait any more.
    """
    RecordPlace.parse(record)
    coordinator = context.coordinator(context.require_pipeline(name))
    before = [held for held in Refusals(coordinator.objects).skipped(sink) if held.record == record]
    if before:
        return SkipFacts(**_record(before[0]), skipped=True)
    refused = refusal_to_skip(coordinator, sink, record)
    if owner:
        skip(coordinator, refused, owner, note)
    return SkipFacts(**_record(refused), skipped=bool(owner))


def list_skipped_records(context: Context, name: str, sink: str | None = None) -> list[SkippedRecordFacts]:
    """The records that sinks skip, oldest first per sink.

    Raises:
        NotFoundError: no such pipeline.
    """
    refusals = Refusals(context.coordinator(context.require_pipeline(name)).objects)
    held = (found for each in refusals.sinks() if sink in (None, each) for found in refusals.skipped(each))
    return [SkippedRecordFacts(**_record(r), owner=r.owner, note=r.note, skipped_at=iso(r.at_ms)) for r in held]


def read_sink(
    context: Context, name: str, sink: str, *, checkpoint: int | None = None, limit: int | None = None
) -> "pa.Table":
    """The rows of a sink as of a checkpoint, read without Spark: emitted fields, row id, `_checkpoint`.

    Args:
        context: of this process.
        name: the pipeline.
        sink: its name; of a sink to Kafka this is the outbox.
        checkpoint: an id; the newest one without it.
        limit: only the last so many rows.

    Raises:
        NotFoundError: no such pipeline, checkpoint or sink.
        StoreError: a file of it is gone.
    """
    from tidemark.readers.sink_reader import read_sink

    rows = read_sink(context.warehouse.root, sink_of(reads.get_checkpoint(context, name, checkpoint), sink))
    return rows if limit is None else rows.slice(max(0, rows.num_rows - limit))


def sink_of(checkpoint: Checkpoint, sink: str) -> SinkTable:
    """The table of a sink as of a checkpoint.

    Raises:
        NotFoundError: the checkpoint names no such sink, or one that keeps no rows.
    """
    known = {table.name: table for table in checkpoint.sinks.values()}
    if sink not in known:
        raise NotFoundError(
            f"{checkpoint.plan.name} has no sink {sink!r}", next=f"name one of: {', '.join(known) or 'none'}."
        )
    found = known[sink]
    if not found.keeps_rows and not found.handle:
        raise NotFoundError(
            f"sink {sink!r} keeps no rows: attempts send them to a topic (guarantee='at_least_once')",
            next=f"read the topic{'' if found.topic is None else ' ' + found.topic} itself.",
        )
    return found


def _status(found: SinkBacklog) -> SinkStatus:
    failure = found.failure
    return SinkStatus(
        sink=found.sink,
        guarantee=traits_of(found.kind).guarantee,
        topic=found.topic,
        waiting=WaitingRecords(
            checkpoints=list(found.checkpoints), records=found.records, since=iso_or_none(found.since_ms)
        ),
        failure=None
        if failure is None
        else LastDeliveryFailure(
            what=failure.what,
            next=failure.next,
            record=failure.record or None,
            size=failure.size or None,
            since=iso(failure.at_ms),
        ),
        skipped=found.skipped,
    )


def _record(held: DeliveryFailure | SkippedRecord) -> dict[str, Any]:
    """The fields of `RefusedRecordFacts`."""
    place = RecordPlace.parse(held.record)
    return {
        "sink": held.sink,
        "record": held.record,
        "checkpoint": f"chk-{place.checkpoint}",
        "timeline": place.timeline,
        "uid": place.uid,
        "partition": f"{place.topic}-{place.partition}",
        "offset": place.offset,
        "number": place.number,
        "size": held.size,
        "why": held.why,
    }


_log = structlog.get_logger("tidemark")


def deliver(context: Context, name: str) -> int:
    """Sends what waits in the outboxes of the live timeline; returns how many records have left them for good.

    Each sink is sent to by itself, oldest checkpoint first. A sink that fails is left alone until the next call,
    which begins with what is left (J2). Nothing raises: the checkpoints are complete, and stay so.
    """
    sent = 0
    try:
        coordinator = context.coordinator(name)
        failing = set[str]()
        for due in undelivered(coordinator):
            if due.table.name in failing:
                continue
            if not is_live(coordinator, due):
                _log.info("delivery_stopped", pipeline=name, why=f"timeline {due.timeline} is not live any more")
                break
            try:
                records = _send(context, due)
                delivered(coordinator, replace(due, records=records))
                sent += records
            except Exception as error:
                failing.add(due.table.name)
                _report(context, coordinator, due, error)
    except Exception as error:
        told = _typed(error)
        _log.warning("records_not_delivered", pipeline=name, why=told.what, next=told.next, exc_info=told is not error)
    return sent


def _send(context: Context, due: Undelivered) -> int:
    """Sends the rows of a checkpoint that are due, without those that are skipped; returns how many have arrived.

    Where Kafka refused one of them before, all ahead of it has arrived then: sending goes on there.
    """
    plan, name = due.checkpoint.plan, due.table.name
    refusals = Refusals(context.coordinator(plan.pipeline).objects)
    skipped = {held for held in refusals.skipped_ids(name) if held.startswith(f"{commit_id(plan)}/")}
    if skipped:
        _log.warning("records_skipped", pipeline=plan.pipeline, sink=name, checkpoint=plan.name, records=len(skipped))
    last, services = refusals.refusal(name, plan.id), Services(kafka=lazily(lambda: context.outbox))
    if last is None:
        return _outbox(context, due).deliver(services, skipped=skipped)
    return _outbox(context, due).deliver(services, skipped=skipped, refused=last.record, digest=last.ahead)


def _outbox(context: Context, due: Undelivered) -> Outbox:
    """The rows of a checkpoint that are due to its sink."""
    from tidemark.readers.sink_reader import outbox_rows

    plan, table, sink = due.checkpoint.plan, due.table, due.table.sink
    assert sink is not None  # noqa: S101  (what keeps rows is a sink)

    def rows() -> Iterator[EmittedRow]:
        held = outbox_rows(context.warehouse.root, table, plan.id)
        return emitted_rows(plan, table, (row for row in held if due.is_due(row)))

    return Outbox(sink=sink, rows=rows, commit_id=commit_id(plan))


def _report(context: Context, coordinator: CheckpointCoordinator, due: Undelivered, error: Exception) -> None:
    """Logs why a sink could not send, and keeps it for `tidemark sink list`."""
    plan, told = due.checkpoint.plan, _typed(error)
    where = {"pipeline": plan.pipeline, "sink": due.table.name}
    _log.warning(
        "records_not_delivered",
        **where,
        topic=due.table.topic,
        checkpoint=plan.name,
        why=told.what,
        next=told.next,
        exc_info=told is not error,
    )
    record, size, why = (told.record, told.size, told.why) if isinstance(told, RecordRefusedError) else ("", 0, "")
    try:
        ahead = _outbox(context, due).digest_ahead(record)
        failure = DeliveryFailure(
            sink=due.table.name,
            topic=due.table.topic or "",
            checkpoint=plan.id,
            what=told.what,
            next=told.next,
            record=record,
            size=size,
            why=why,
            ahead=ahead,
            at_ms=coordinator.clock.now_ms(),
            write_id=coordinator.write_ids(),
        )
        Refusals(coordinator.objects).put_failure(failure)
    except TidemarkError as second:
        _log.warning("delivery_failure_not_kept", **where, why=second.what)


def _typed(error: Exception) -> TidemarkError:
    """An error of ours as it is; a foreign one in our three lines."""
    if isinstance(error, TidemarkError):
        return error
    return TidemarkError(
        f"records were not sent: {type(error).__name__}: {error}",
        safe="the checkpoint is complete; its emitted records stay in the outbox.",
        next="read the traceback in the log; the next run of the pipeline sends them first.",
    )
