"""One checkpoint: the acknowledgement of every operator, its ranges, its gate; and the pipeline's configuration."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace

from tidemark.answers.checkpoint_details import (
    CheckpointConfig,
    CheckpointDetails,
    DueTimeFacts,
    DueTimes,
    ExpectationResult,
    Externalization,
    FieldConfig,
    OpenProgress,
    OperatorConfig,
    OperatorDetails,
    OperatorRejections,
    OutputConfig,
    PartitionRange,
    RejectionReason,
    Rejections,
    SegmentFacts,
    SinkSegments,
    StateLayers,
    Successor,
)
from tidemark.answers.checkpoint_facts import iso, iso_or_none, source_watermarks
from tidemark.answers.checkpoint_overview import CheckpointLine
from tidemark.context import Context
from tidemark.coordinator.records.objects import Objects
from tidemark.errors import NotFoundError, UsageError
from tidemark.glance import glance_at
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.manifest import Ack, Checkpoint
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.checkpoint.segments import StateHandle
from tidemark.model.checkpoint.sinks import SinkTable
from tidemark.model.core.names import operator_of
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.operations import compaction, reads, savepoints
from tidemark.ports.caching import Prefetches
from tidemark.web import history_cache
from tidemark.web.event_time import furthest_clocks, is_clocked, kind_of_wait, span_in_words
from tidemark.web.history import CheckpointStatus
from tidemark.web.history_lines import line_of


def get_details(context: Context, name: str, checkpoint: int) -> CheckpointDetails:
    """Flink's `/checkpoints/details/:id`. Only a completed checkpoint has operators; of any other the plan is shown.

    Of a checkpoint whose manifest is damaged the plan is shown, too.

    Raises:
        NotFoundError: no such pipeline, or the id was never planned.
        CorruptObjectError: its plan is damaged, or its manifest is and its plan is gone.
        ReleasedError: its manifest is damaged, and it was given up.
    """
    context = glance_at(context)
    neighbours = history_cache.get_neighbours(context, name, checkpoint)
    entry = history_cache.get_entry(context, name, checkpoint)
    if entry is None:
        raise NotFoundError(f"no checkpoint chk-{checkpoint} in {name}", next=f"tidemark checkpoint list {name}")
    coordinator = context.coordinator(name)
    found = history_cache.find_checkpoint(context, name, entry, checkpoint)
    plan = coordinator.timelines.plan(checkpoint) if found is None else found.plan
    pins = savepoints.open_savepoints(context, name).pins().get(checkpoint, ())
    line = line_of(entry, pins, discarded=history_cache.is_discarded(context, name, checkpoint))
    is_open = found is None and entry.status is CheckpointStatus.IN_PROGRESS
    progress = _progress(context, plan) if is_open else None
    if progress is not None:
        line = replace(line, num_acknowledged_subtasks=len(progress.acknowledged))
    answer = _details(context, line, plan, found, progress)
    return replace(
        answer,
        expectations=_expectations(coordinator.objects, plan, found),
        released=[n for n in _before(plan) if history_cache.is_discarded(context, name, n)],
        previous=neighbours[0],
        next=neighbours[1],
        successor=_successor(context, plan, neighbours[1]) if line.status == CheckpointStatus.FAILED.value else None,
    )


def list_due_times(
    context: Context, name: str, checkpoint: int, uid: str, limit: int = 20, *, with_keys: bool = True
) -> DueTimes:
    """What waits for the frontier of an operator at a completed checkpoint: it reads the operator's whole state.

    Args:
        context: of this process.
        name: the pipeline.
        checkpoint: its id.
        uid: the operator.
        limit: the most times to return.
        with_keys: whether to name some of the keys.

    Raises:
        NotFoundError: no such pipeline, checkpoint or operator.
        UsageError: the operator has neither windows nor timers.
        StoreError: a file of the state is gone.
    """
    from tidemark.readers.checkpoint_reader import due_times

    found = reads.get_checkpoint(context, history_cache.require_planned(context, name), checkpoint)
    schema = reads.schema_of(found, uid)
    if not is_clocked(schema):
        raise UsageError(f"{uid} has neither windows nor timers", next=f"its state: tidemark state show {name} {uid}.")
    overdue_ms = furthest_clocks(found).get(uid)
    waiting = due_times(context.warehouse.root, found, uid, limit, overdue_ms)
    return DueTimes(
        uid=uid,
        what=kind_of_wait(schema),
        frontier=iso_or_none(found.now.frontiers.get(uid)),
        total=waiting.total,
        overdue=waiting.overdue,
        last=iso_or_none(waiting.last_ms),
        first=[
            DueTimeFacts(
                at=iso(due.at_ms),
                count=due.count,
                overdue=overdue_ms is not None and due.at_ms <= overdue_ms,
                some=due.some if with_keys else [],
            )
            for due in waiting.first
        ],
    )


def count_rejections(context: Context, name: str, checkpoint: int) -> Rejections:
    """Dead letters of a completed checkpoint by operator and reason; it reads the operators' dead-letter tables.

    Raises:
        NotFoundError: no such pipeline or checkpoint, or retention has released it.
        StoreError: a file of a table is gone.
    """
    from tidemark.readers.dead_letter_reader import count_letters

    found = reads.get_checkpoint(context, history_cache.require_planned(context, name), checkpoint)
    acks = [ack for ack in found.sealed.acks if ack.dead_lettered]
    reasons, records = count_letters(context.warehouse.root, {ack.uid: ack.dead_letters for ack in acks}, checkpoint)
    return Rejections(
        checkpoint=found.plan.name,
        records=records,
        operators=[
            OperatorRejections(
                uid=ack.uid,
                read=ack.read,
                letters=sum(reasons[ack.uid].values()),
                reasons=[RejectionReason(reason=reason, letters=n) for reason, n in reasons[ack.uid].most_common()],
            )
            for ack in acks
        ],
    )


def _details(
    context: Context,
    line: CheckpointLine,
    plan: CheckpointPlan,
    found: Checkpoint | None,
    progress: OpenProgress | None,
) -> CheckpointDetails:
    known = {f.name: getattr(line, f.name) for f in fields(line)} | {"logical_time": iso(plan.logical_time_ms)}
    return CheckpointDetails(
        **known,
        slot=str(plan.slot),
        ranges=_ranges(plan, found),
        isolation=plan.isolation,
        fingerprint=plan.fingerprint,
        adopted=dict(plan.adopted),
        losses=[f"{gap.partition} {gap.lost}: {gap.why}" for gap in plan.losses],
        left_behind={uid: handle.rows for uid, handle in plan.left_behind.items()},
        previous=None,
        next=None,
        progress=progress,
        drains=plan.drains,
        successor=None,
        watermark=None if found is None else iso_or_none(found.sealed.facts.watermark_ms),
        source_watermarks={} if found is None else source_watermarks(found),
        covered_until=None if found is None else iso_or_none(found.covered_until_ms),
        expectations=[],
        released=[],
        timings={} if found is None else dict(found.sealed.timings_ms),
        tasks=[] if found is None else _operators(context, found),
    )


def _operators(context: Context, found: Checkpoint) -> list[OperatorDetails]:
    """All operators; the logs of their tables are read at the same time from a bucket."""
    acks = found.sealed.acks
    if context.warehouse.bucket is None:
        return [_operator(found, ack, compaction.describe_layers(context, found, ack.uid)) for ack in acks]
    store = context.store(found.plan.pipeline)
    if isinstance(store, Prefetches):
        store.prefetch(found.plan.adopted.values())  # what follows must not read from the store in several threads
    with ThreadPoolExecutor(max(1, len(acks))) as pool:
        layers = pool.map(lambda ack: compaction.describe_layers(context, found, ack.uid), acks)
        return [_operator(found, ack, layer) for ack, layer in zip(acks, layers, strict=True)]


def _successor(context: Context, failed: CheckpointPlan, after: int | None) -> Successor | None:
    """The completed checkpoint in the place of a failed one, else the newest plan for it; `after` is the next id."""
    place = (failed.slot.timeline, failed.slot.sequence)
    known = {entry.id: entry for entry in history_cache.list_entries(context, failed.pipeline)}
    if after is not None:
        known |= history_cache.open_history(context, failed.pipeline).entries_of([after])
    later = [
        entry
        for entry in sorted(known.values(), key=lambda e: -e.id)
        if entry.id > failed.id and (entry.slot.timeline, entry.slot.sequence) == place
    ]
    if not later:
        return None
    done = next((entry for entry in later if entry.status is CheckpointStatus.COMPLETED), later[0])
    spans = {str(tp): bounds.end - bounds.start for tp, bounds in failed.ranges.items() if bounds.end > bounds.start}
    return Successor(id=done.id, name=done.name, status=done.status.value, same_offsets=dict(done.spans) == spans)


def _progress(context: Context, plan: CheckpointPlan) -> OpenProgress:
    """Progress of an open plan, by the outcomes of its attempts and the commits of the newest one."""
    objects, number = context.coordinator(plan.pipeline).objects, 0
    while (outcome := objects.outcome(plan.slot, number)) is not None and outcome.sealed is None:
        number += 1
    if outcome is not None:
        step, acknowledged = "sealed", list(plan.handles)
    elif number:
        step, acknowledged = "running", compaction.list_committed(context, plan, number)
    else:
        step, acknowledged = "planned", []
    elapsed = max(0, context.clock.now_ms() - plan.planned_at_ms)
    return OpenProgress(step=step, attempt=number, elapsed=elapsed, acknowledged=acknowledged)


def get_config(context: Context, name: str) -> CheckpointConfig:
    """Flink's `/checkpoints/config`, as far as the newest manifest and the warehouse know it.

    The plugin adds the fields that the DAG decides.

    Raises:
        NotFoundError: no such pipeline, or it has planned no checkpoint yet.
    """
    context = glance_at(context)
    newest = next(iter(history_cache.list_entries(context, name)), None)
    if newest is None:
        raise NotFoundError(f"{name} has no checkpoints yet", next=f"tidemark run {name}")
    plan = context.coordinator(name).timelines.plan(newest.id)
    return CheckpointConfig(
        mode="exactly_once",
        interval=None,
        timeout=None,
        min_pause=None,
        deadline=context.settings.deadline_ms(name),
        max_concurrent=1,
        externalization=Externalization(enabled=True, delete_on_cancellation=False),
        state_backend="delta",
        checkpoint_storage=f"{name}/{keys.slot_key(plan.slot.timeline, 0).rpartition('/')[0]}",
        tolerable_failed_checkpoints=None,
        retries=None,
        dag_id=None,
        is_paused=None,
        next_run=None,
        as_of=plan.name,
        isolation=plan.isolation,
        fingerprint=plan.fingerprint,
        sources={source: list(topics) for source, topics in plan.sources.items()},
        operators=[_operator_config(plan, schema) for schema in plan.schemas.values()],
    )


def _operator_config(plan: CheckpointPlan, schema: OperatorSchema) -> OperatorConfig:
    sinks = plan.sinks_of(schema.uid)
    sink = sinks.pop(schema.uid, None)
    return OperatorConfig(
        uid=schema.uid,
        kind=schema.kind,
        keys=[key.name for key in schema.keys],
        fields=[
            FieldConfig(name=f.name, kind=f.kind, ttl=None if f.ttl is None else span_in_words(f.ttl.ttl))
            for f in schema.fields
        ],
        clock=schema.clock,
        key_groups=schema.key_groups,
        sink=None if sink is None else sink.name,
        sink_columns=[] if sink is None else _row_columns(sink),
        more_sinks=[
            OutputConfig(uid=output, sink=table.name, sink_columns=_row_columns(table))
            for output, table in sinks.items()
        ],
    )


def _row_columns(sink: SinkTable) -> list[str]:
    """The columns by which a row can be looked up; a sink that keeps no rows has none."""
    return [column for column, _ in sink.stored] if sink.keeps_rows else []


def _ranges(plan: CheckpointPlan, found: Checkpoint | None) -> list[PartitionRange]:
    marks = {} if found is None else found.sealed.facts.watermarks
    return [
        PartitionRange(
            partition=str(tp),
            topic=tp.topic,
            start=bounds.start,
            end=bounds.end,
            pending=plan.pending.get(tp, 0),
            watermark=iso_or_none(marks.get(tp)),
            topic_id=plan.topic_ids.get(tp.topic),
        )
        for tp, bounds in plan.ranges.items()
    ]


def _before(plan: CheckpointPlan) -> list[int]:
    """The checkpoints that one is compared with: its parent, and those that it repeats."""
    return [*(() if plan.parent is None else (plan.parent,)), *plan.replays]


def _expectations(objects: Objects, plan: CheckpointPlan, found: Checkpoint | None) -> list[ExpectationResult]:
    """The verdict of the gate, also of a checkpoint that it refused."""
    if found is None:
        abort = objects.abort(plan.slot)
        verdict = None if abort is None else abort.failure.verdict
    else:
        verdict = found.sealed.verdict
    return [
        ExpectationResult(frame=e.frame, type=e.type, success=e.success, severity=e.severity, detail=e.detail)
        for e in (verdict.expectations if verdict is not None else ())
    ]


def _operator(found: Checkpoint, ack: Ack, layers: StateLayers) -> OperatorDetails:
    sinks = {output: found.sinks[output] for output in found.plan.sinks_of(ack.uid)}
    sink = sinks.pop(ack.uid, None)
    timings = _timings(found, ack.uid)
    return OperatorDetails(
        uid=ack.uid,
        kind=found.plan.schemas[ack.uid].kind,
        checkpointed_size=ack.run_bytes,
        state_size=ack.handle.bytes,
        work_duration=sum(timings.values()),
        rows=ack.handle.rows,
        files=sum(s.files for s in ack.handle),
        levels=sum(s.path.endswith("/base") for s in ack.handle),
        segments=_segments(ack.handle),
        keys=ack.keys,
        read=ack.read,
        applied=ack.applied,
        filtered=ack.filtered,
        dead_lettered=ack.dead_lettered,
        late=ack.late,
        fired=ack.fired,
        is_clocked=is_clocked(found.plan.schemas[ack.uid]),
        frontier=iso_or_none(found.now.frontiers.get(ack.uid)),
        dead_letter_rows=ack.dead_letters.rows,
        emitted=ack.emitted_to_all,
        sink=None if sink is None else SinkSegments(name=sink.name, segments=_segments(sink.handle)),
        more_sinks=[SinkSegments(name=table.name, segments=_segments(table.handle)) for table in sinks.values()],
        operator_state={x.name: len(x.elements) for x in ack.operator_state.lists},
        timings=timings,
        live_runs=layers.live_runs,
        deepest_level=layers.deepest_level,
        run_rows=layers.run_rows,
        compaction=layers.compaction,
    )


def _timings(found: Checkpoint, uid: str) -> dict[str, int]:
    """The steps of an operator, as in `fold.aircraft`; one of several outputs, as in `sent.watch.late`, is the sum."""
    spent = Counter[str]()
    for step, ms in found.sealed.timings_ms.items():
        name, _, of = step.partition(".")
        if of and operator_of(of, found.plan.schemas) == uid:
            spent[name] += ms
    return dict(spent)


def _segments(handle: StateHandle) -> list[SegmentFacts]:
    return [
        SegmentFacts(
            path=s.path,
            table=s.path.rpartition("/")[2],
            version=s.version,
            after=s.after,
            through=s.through,
            rows=s.rows,
            bytes=s.bytes,
            files=s.files,
        )
        for s in handle
    ]
