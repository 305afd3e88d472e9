"""The backlog of each sink: which checkpoints wait to be sent, since when, and why. Skips refused records."""

from collections.abc import Sequence
from dataclasses import dataclass

from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.checkpoints.loop import list_undelivered
from tidemark.coordinator.plans.sink_inputs import Undelivered
from tidemark.coordinator.records.refusal_records import Refusals
from tidemark.coordinator.records.states import OpenPlan
from tidemark.errors import ConflictError, NotFoundError
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.checkpoint.refused_records import DeliveryFailure, SkippedRecord
from tidemark.model.checkpoint.sinks import SinkTable


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkBacklog:
    """The checkpoints and records that wait to be sent to one sink.

    Attributes:
        sink: its name.
        kind: see `SinkTable.kind`.
        topic: the destination; None for a Delta sink.
        checkpoints: names of the checkpoints that wait, oldest first. For a sink that attempts send to, this includes
            the open plan if Kafka refused one of its records.
        records: number of records that the sink's operators emitted in these checkpoints.
        since_ms: when the oldest of these checkpoints was planned; None if nothing waits.
        failure: why the oldest could not be sent; None if sending was not tried or did not fail.
        skipped: number of records that are left out of the sink.
    """

    sink: str
    kind: str
    topic: str | None
    checkpoints: tuple[str, ...] = ()
    records: int = 0
    since_ms: int | None = None
    failure: DeliveryFailure | None = None
    skipped: int = 0


def backlogs(coordinator: CheckpointCoordinator) -> list[SinkBacklog]:
    """Lists sinks by name: those of the live timeline's newest checkpoint, and others that still have a backlog."""
    refusals, waiting = Refusals(coordinator.objects), list_undelivered(coordinator)
    newest = next(iter(coordinator.checkpoints()), None)
    tables = {due.table.name: due.table for due in waiting}
    for table in () if newest is None else newest.sinks.values():
        tables[table.name] = table
    standing = coordinator.open_plan()
    plan = standing.plan if isinstance(standing, OpenPlan) else None
    for table in () if plan is None else plan.sinks.values():
        tables.setdefault(table.name, table)
    return [
        _backlog(refusals, table, [due for due in waiting if due.table.name == name], plan)
        for name, table in sorted(tables.items())
    ]


def _backlog(
    refusals: Refusals, table: SinkTable, waiting: Sequence[Undelivered], plan: CheckpointPlan | None
) -> SinkBacklog:
    plans = [due.checkpoint.plan for due in waiting]
    failure = next(refusals.failures(table.name), None)
    if plan is not None and failure is not None and failure.checkpoint == plan.id:
        plans.append(plan)
    return SinkBacklog(
        sink=table.name,
        kind=table.kind,
        topic=next((due.table.topic for due in waiting), table.topic),
        checkpoints=tuple(p.name for p in plans),
        records=sum(due.records for due in waiting),
        since_ms=min((p.planned_at_ms for p in plans), default=None),
        failure=failure if failure is not None and failure.checkpoint in {p.id for p in plans} else None,
        skipped=len(refusals.list_skipped(table.name)),
    )


def refusal_to_skip(coordinator: CheckpointCoordinator, sink: str, record: str) -> DeliveryFailure:
    """Returns the refusal of a record that still waits.

    Raises:
        NotFoundError: Kafka has refused no such record of the sink.
        ConflictError: the record no longer waits.
    """
    name = coordinator.name
    failure = next((f for f in Refusals(coordinator.objects).failures(sink) if f.record == record), None)
    if failure is None:
        raise NotFoundError(
            f"Kafka has refused no record {record} of sink {sink}",
            safe="you can skip only a record that Kafka refused; nothing was changed.",
            next=f"tidemark sink list {name}    (lists the refused records).",
        )
    standing = coordinator.open_plan()
    open_id = standing.plan.id if isinstance(standing, OpenPlan) else None
    waits = (d for d in list_undelivered(coordinator) if d.table.name == sink and d.checkpoint.id == failure.checkpoint)
    if failure.checkpoint != open_id and next(waits, None) is None:
        raise ConflictError(
            f"record {record} no longer waits: its checkpoint was sent, aborted, or left its timeline",
            safe="nothing was changed.",
            next=f"tidemark sink list {name}    (shows what waits).",
        )
    return failure


def skip(coordinator: CheckpointCoordinator, failure: DeliveryFailure, owner: str, note: str) -> bool:
    """Leaves the refused record out of its sink from now on. Returns whether this call did so."""
    record = SkippedRecord(
        sink=failure.sink,
        record=failure.record,
        size=failure.size,
        why=failure.why,
        owner=owner,
        note=note,
        at_ms=coordinator.clock.now_ms(),
        write_id=coordinator.write_ids(),
    )
    return Refusals(coordinator.objects).skip(record)
