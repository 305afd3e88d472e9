"""One checkpoint: the acknowledgement of every operator, its ranges, its gate; and the pipeline's configuration."""

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace

from tidemark.answers.checkpoint_details import (
    CheckpointConfig,
    CheckpointDetails,
    DataInterval,
    DueTimeFacts,
    DueTimes,
    ExpectationResult,
    Externalization,
    FieldConfig,
    OpenProgress,
    OperatorConfig,
    OperatorDetails,
    OutputConfig,
    PartitionRange,
    SegmentFacts,
    SinkSegments,
    StateLayers,
)
from tidemark.answers.checkpoint_facts import iso, iso_or_none, source_watermarks
from tidemark.answers.checkpoint_overview import CheckpointLine
from tidemark.context import Context
from tidemark.errors import NotFoundError, UsageError
from tidemark.glance import glance_at
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.manifest import Ack, Checkpoint
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.checkpoint.segments import StateHandle
from tidemark.model.checkpoint.sinks import SinkTable
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.operations import compaction, reads, savepoints
from tidemark.web import history_cache
from tidemark.web.history_lines import line_of


def get_details(context: Context, name: str, checkpoint: int) -> CheckpointDetails:
    """Flink's `/checkpoints/details/:id`. Only a completed checkpoint has operators; of any other the plan is shown.

    Raises:
        NotFoundError: no such pipeline, or the id was never planned.
        CorruptObjectError: its plan or its manifest is damaged.
    """
    context = glance_at(context)
    entry = history_cache.get_entry(context, name, checkpoint)
    if entry is None:
        raise NotFoundError(f"no checkpoint chk-{checkpoint} in {name}", next=f"tidemark checkpoint list {name}")
    coordinator = context.coordinator(name)
    found = coordinator.timelines.find(checkpoint)
    plan = coordinator.timelines.plan(checkpoint) if found is None else found.plan
    pins = savepoints.open_savepoints(context, name).pins().get(checkpoint, ())
    line = line_of(entry, pins, discarded=history_cache.is_discarded(context, name, checkpoint))
    progress = None if found is not None or entry.is_final else _progress(context, plan)
    if progress is not None:
        line = replace(line, num_acknowledged_subtasks=len(progress.acknowledged))
    return _details(context, line, plan, found, progress)


def list_due_times(context: Context, name: str, checkpoint: int, uid: str, limit: int = 20) -> DueTimes:
    """What waits for the frontier of an operator at a completed checkpoint: it reads the operator's whole state.

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
    total, first = due_times(context.warehouse.root, found, uid, limit)
    return DueTimes(
        uid=uid,
        what="timers" if schema.window is None else "windows" if schema.interval_join is None else "rows",
        frontier=iso_or_none(found.now.frontiers.get(uid)),
        total=total,
        first=[DueTimeFacts(at=iso(due.at_ms), count=due.count, some=due.some) for due in first],
    )


def is_clocked(schema: OperatorSchema) -> bool:
    """Whether an operator has a frontier: it has windows or timers."""
    return schema.window is not None or schema.timers is not None


def _details(
    context: Context,
    line: CheckpointLine,
    plan: CheckpointPlan,
    found: Checkpoint | None,
    progress: OpenProgress | None,
) -> CheckpointDetails:
    before, after = history_cache.get_neighbours(context, plan.pipeline, line.id)
    interval = plan.interval
    known = {f.name: getattr(line, f.name) for f in fields(line)} | {"logical_time": iso(plan.logical_time_ms)}
    return CheckpointDetails(
        **known,
        slot=str(plan.slot),
        ranges=_ranges(plan, found),
        interval=None if interval is None else DataInterval(start=iso(interval.start_ms), end=iso(interval.end_ms)),
        isolation=plan.isolation,
        fingerprint=plan.fingerprint,
        adopted=dict(plan.adopted),
        losses=[f"{gap.partition} {gap.lost}: {gap.why}" for gap in plan.losses],
        left_behind={uid: handle.rows for uid, handle in plan.left_behind.items()},
        previous=before,
        next=after,
        progress=progress,
        drains=plan.drains,
        watermark=None if found is None else iso_or_none(found.sealed.facts.watermark_ms),
        source_watermarks={} if found is None else source_watermarks(found),
        covered_until=None if found is None else iso_or_none(found.covered_until_ms),
        expectations=[] if found is None else _expectations(found),
        timings={} if found is None else dict(found.sealed.timings_ms),
        tasks=[] if found is None else [_operator(context, found, ack) for ack in found.sealed.acks],
    )


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
            FieldConfig(name=f.name, kind=f.kind, ttl=None if f.ttl is None else str(f.ttl.ttl)) for f in schema.fields
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


def _expectations(found: Checkpoint) -> list[ExpectationResult]:
    return [
        ExpectationResult(frame=e.frame, type=e.type, success=e.success, severity=e.severity, detail=e.detail)
        for e in found.sealed.verdict.expectations
    ]


def _operator(context: Context, found: Checkpoint, ack: Ack) -> OperatorDetails:
    sinks = {output: found.sinks[output] for output in found.plan.sinks_of(ack.uid)}
    sink = sinks.pop(ack.uid, None)
    timings = dict(_timings(found.sealed.timings_ms, ack.uid))
    layers: StateLayers = compaction.describe_layers(context, found, ack.uid)
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


def _timings(timings_ms: Mapping[str, int], uid: str) -> Iterator[tuple[str, int]]:
    """Steps that name an operator after a dot, as in `fold.aircraft`."""
    for step, ms in timings_ms.items():
        name, dot, of = step.partition(".")
        if dot and of == uid:
            yield name, ms


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
