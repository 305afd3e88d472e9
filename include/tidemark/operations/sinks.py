"""Sinks: reads one as of a checkpoint, lists and sends the rows that wait in outboxes, skips a record."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tidemark.answers.checkpoint_facts import iso, iso_or_none
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
from tidemark.coordinator.checkpoints.loop import is_live, list_undelivered, record_delivery
from tidemark.coordinator.plans.sink_inputs import Undelivered, has_outbox
from tidemark.coordinator.records.refusal_records import Refusals
from tidemark.environment import lazy_proxy
from tidemark.errors import NotFoundError, RecordRefusedError, TidemarkError
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.messages import EmittedRow, RecordPlace, commit_id, emitted_rows
from tidemark.model.checkpoint.refused_records import DeliveryFailure, SkippedRecord
from tidemark.model.checkpoint.sink_traits import traits_of
from tidemark.model.checkpoint.sinks import SinkTable
from tidemark.operations import reads
from tidemark.sinks.known_sinks import stored_sink
from tidemark.sinks.outbox import Outbox
from tidemark.sinks.sink import Services
from tidemark.telemetry.lazy_logger import log

if TYPE_CHECKING:
    import pyarrow as pa


def list_sinks(context: Context, name: str) -> list[SinkStatus]:
    """Lists the sinks of a pipeline and the rows that wait to be sent.

    Raises:
        NotFoundError: no such pipeline.
    """
    return [_status(found) for found in backlogs(context.coordinator(context.require_pipeline(name)))]


def skip_record(context: Context, name: str, sink: str, record: str, owner: str = "", note: str = "") -> SkipFacts:
    """Leaves a record that Kafka refuses out of a sink from now on; without an owner, this is a dry run.

    Raises:
        UsageError: the text is no id of an emitted record.
        NotFoundError: Kafka has refused no such record of the sink.
        ConflictError: the record no longer waits.
    """
    RecordPlace.parse(record)
    coordinator = context.coordinator(context.require_pipeline(name))
    before = [held for held in Refusals(coordinator.objects).list_skipped(sink) if held.record == record]
    if before:
        return SkipFacts(**_record(before[0]), skipped=True)
    refused = refusal_to_skip(coordinator, sink, record)
    if owner:
        skip(coordinator, refused, owner, note)
    return SkipFacts(**_record(refused), skipped=bool(owner))


def list_skipped_records(context: Context, name: str, sink: str | None = None) -> list[SkippedRecordFacts]:
    """Lists the records that sinks leave out, oldest first per sink.

    Raises:
        NotFoundError: no such pipeline.
    """
    refusals = Refusals(context.coordinator(context.require_pipeline(name)).objects)
    held = (found for each in refusals.sinks() if sink in (None, each) for found in refusals.list_skipped(each))
    return [SkippedRecordFacts(**_record(r), owner=r.owner, note=r.note, skipped_at=iso(r.at_ms)) for r in held]


def read_sink(
    context: Context, name: str, sink: str, *, checkpoint: int | None = None, limit: int | None = None
) -> "pa.Table":
    """Returns the rows of a sink as of a checkpoint, read without Spark: emitted fields, row id, `_checkpoint`.

    Args:
        context: of this process.
        name: the pipeline.
        sink: its name; for a Kafka sink, the rows of its outbox are returned.
        checkpoint: an id; by default the newest one.
        limit: return only the last rows, at most this many.

    Raises:
        NotFoundError: no such pipeline, checkpoint or sink.
        StoreError: a file of the sink is gone.
    """
    from tidemark.readers.sink_reader import read_sink

    rows = read_sink(context.warehouse.root, sink_of(reads.get_checkpoint(context, name, checkpoint), sink))
    return rows if limit is None else rows.slice(max(0, rows.num_rows - limit))


def sink_of(checkpoint: Checkpoint, sink: str) -> SinkTable:
    """Returns the table of a sink as of a checkpoint.

    Raises:
        NotFoundError: the checkpoint has no such sink, or the sink keeps no rows.
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
        "path": place.path,
        "size": held.size,
        "why": held.why,
    }


def deliver(context: Context, name: str, made: Checkpoint | None = None) -> int:
    """Sends the rows that wait in the outboxes of the live timeline; returns the number of records sent for good.

    Each sink is sent to separately, oldest checkpoint first. A sink that fails is left alone until the next call, which
    begins with its remaining rows. Nothing is raised: the checkpoints are complete and stay complete.

    Args:
        context: of this process.
        name: the pipeline.
        made: the newest checkpoint, if this process has just made it: if it has no outbox, nothing else is read.
    """
    sent = 0
    try:
        if made is not None and not has_outbox(made):
            return 0
        coordinator = context.coordinator(name)
        failing = set[str]()
        for due in list_undelivered(coordinator):
            if due.table.name in failing:
                continue
            if not is_live(coordinator, due):
                log.info("delivery_stopped", pipeline=name, why=f"timeline {due.timeline} is no longer live")
                break
            try:
                records = _send(context, due)
                record_delivery(coordinator, replace(due, records=records))
                sent += records
            except Exception as error:
                failing.add(due.table.name)
                _report(context, coordinator, due, error)
    except Exception as error:
        typed = _as_tidemark_error(error)
        trace = typed is not error
        log.warning("records_not_delivered", pipeline=name, why=typed.what, next=typed.next, exc_info=trace)
    return sent


def _send(context: Context, due: Undelivered) -> int:
    """Sends the due rows of a checkpoint, without skipped ones; returns the number of acknowledged records.

    If Kafka refused one of them before, all records before it have arrived, so sending continues with that one.
    """
    plan, name = due.checkpoint.plan, due.table.name
    refusals = Refusals(context.coordinator(plan.pipeline).objects)
    skipped = {held for held in refusals.skipped_ids(name) if held.startswith(f"{commit_id(plan)}/")}
    if skipped:
        log.warning("records_skipped", pipeline=plan.pipeline, sink=name, checkpoint=plan.name, records=len(skipped))
    last, services = refusals.refusal(name, plan.id), Services(kafka=lazy_proxy(lambda: context.outbox))
    if last is None:
        return _outbox(context, due).deliver(services, skipped=skipped)
    return _outbox(context, due).deliver(services, skipped=skipped, refused=last.record, digest=last.ahead)


def _outbox(context: Context, due: Undelivered) -> Outbox:
    """The rows of a checkpoint that are due to its sink."""
    from tidemark.readers.sink_reader import outbox_rows

    plan, table, sink = due.checkpoint.plan, due.table, stored_sink(due.table)
    assert sink is not None  # noqa: S101  (every table that keeps rows has a sink)

    def rows() -> Iterator[EmittedRow]:
        held = outbox_rows(context.warehouse.root, table, plan.id)
        return emitted_rows(plan, table, filter(due.is_due, held))

    return Outbox(sink=sink, rows=rows, commit_id=commit_id(plan))


def _report(context: Context, coordinator: CheckpointCoordinator, due: Undelivered, error: Exception) -> None:
    """Logs why a sink could not send, and records it for `tidemark sink list`."""
    plan, typed = due.checkpoint.plan, _as_tidemark_error(error)
    where = {"pipeline": plan.pipeline, "sink": due.table.name}
    log.warning(
        "records_not_delivered",
        **where,
        topic=due.table.topic,
        checkpoint=plan.name,
        why=typed.what,
        next=typed.next,
        exc_info=typed is not error,
    )
    record, size, why = (typed.record, typed.size, typed.why) if isinstance(typed, RecordRefusedError) else ("", 0, "")
    try:
        ahead = _outbox(context, due).digest_ahead(record)
        failure = DeliveryFailure(
            sink=due.table.name,
            topic=due.table.topic or "",
            checkpoint=plan.id,
            what=typed.what,
            next=typed.next,
            record=record,
            size=size,
            why=why,
            ahead=ahead,
            at_ms=coordinator.clock.now_ms(),
            write_id=coordinator.write_ids(),
        )
        Refusals(coordinator.objects).put_failure(failure)
    except TidemarkError as second:
        log.warning("delivery_failure_not_kept", **where, why=second.what)


def _as_tidemark_error(error: Exception) -> TidemarkError:
    """Returns Tidemark's own errors unchanged; wraps any other error."""
    if isinstance(error, TidemarkError):
        return error
    return TidemarkError(
        f"records were not sent: {type(error).__name__}: {error}",
        safe="the checkpoint is complete; its emitted records stay in the outbox.",
        next="read the traceback in the log; the next run of the pipeline sends them first.",
    )
