"""One checkpoint: what every operator acknowledged (K3, K4), its ranges, its gate; and how the pipeline is set (K8)."""

from collections.abc import Iterator, Mapping

from tidemark.context import Context
from tidemark.errors import NotFoundError
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.checkpoint_facts import iso
from tidemark.model.checkpoint.manifest import Ack, Checkpoint
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.checkpoint.segments import Segment, StateHandle
from tidemark.operations import compaction, savepoints
from tidemark.web import history_cache
from tidemark.web.history_json import Json, line


def get_details(context: Context, name: str, checkpoint: int) -> Json:
    """Flink's `/checkpoints/details/:id`: of a completed one with its operators; of any other with its plan.

    Raises:
        NotFoundError: no such pipeline, or the id came to nothing.
        CorruptObjectError: its plan or its manifest is damaged.
    """
    entry = history_cache.get_entry(context, name, checkpoint)
    if entry is None:
        raise NotFoundError(f"no checkpoint chk-{checkpoint} in {name}", next=f"tidemark checkpoint list {name}")
    coordinator = context.coordinator(name)
    found = coordinator.timelines.find(checkpoint)
    plan = coordinator.timelines.plan(checkpoint) if found is None else found.plan
    pins = savepoints.open_savepoints(context, name).pins().get(checkpoint, ())
    discarded = history_cache.is_discarded(context, name, checkpoint)
    before, after = history_cache.get_neighbours(context, name, checkpoint)
    told = line(entry, pins, discarded=discarded) | {"ranges": _ranges(plan, found), **_planned(plan)}
    told |= {"previous": before, "next": after, "progress": None}
    if found is None:
        told |= {"tasks": [], "expectations": [], "timings": {}}
        return told if entry.is_final else told | _progress(context, plan)
    return told | {
        "watermark": _time(found.sealed.facts.watermark_ms),
        "covered_until": _time(found.covered_until_ms),
        "expectations": [
            {"frame": e.frame, "type": e.type, "success": e.success, "severity": e.severity, "detail": e.detail}
            for e in found.sealed.verdict.expectations
        ],
        "timings": dict(found.sealed.timings_ms),
        "tasks": [_task(found, ack) | compaction.describe_layers(context, found, ack.uid) for ack in found.sealed.acks],
    }


def _progress(context: Context, plan: CheckpointPlan) -> Json:
    """How far an open plan is: by the outcomes of its attempts, and by what the newest one has committed."""
    objects, number = context.coordinator(plan.pipeline).objects, 0
    while (outcome := objects.outcome(plan.slot, number)) is not None and outcome.sealed is None:
        number += 1
    uids = list(plan.handles)
    if outcome is not None:
        step, acked = "sealed", uids
    elif number:
        step, acked = "running", compaction.list_committed(context, plan, number)
    else:
        step, acked = "planned", []
    elapsed = max(0, context.clock.now_ms() - plan.planned_at_ms)
    return {
        "num_acknowledged_subtasks": len(acked),
        "progress": {"step": step, "attempt": number, "elapsed": elapsed, "acknowledged": acked},
    }


def get_config(context: Context, name: str) -> Json:
    """Flink's `/checkpoints/config`, as far as the newest manifest and the warehouse tell it.

    What the DAG decides (interval, timeout, tolerable failures) is added by the plugin.

    Raises:
        NotFoundError: no such pipeline, or nothing was planned yet.
    """
    newest = next(iter(history_cache.list_entries(context, name)), None)
    if newest is None:
        raise NotFoundError(f"{name} has no checkpoints yet", next=f"tidemark run {name}")
    plan = context.coordinator(name).timelines.plan(newest.id)
    return {
        "mode": "exactly_once",
        "max_concurrent": 1,
        "deadline": context.settings.deadline_ms(name),
        "externalization": {"enabled": True, "delete_on_cancellation": False},
        "state_backend": "delta",
        "checkpoint_storage": f"{name}/{keys.slot_key(plan.slot.timeline, 0).rpartition('/')[0]}",
        "as_of": plan.name,
        "isolation": plan.isolation,
        "fingerprint": plan.fingerprint,
        "sources": {source: list(topics) for source, topics in plan.sources.items()},
        "operators": [
            {
                "uid": schema.uid,
                "kind": schema.kind,
                "keys": [key.name for key in schema.keys],
                "fields": [{"name": f.name, "kind": f.kind, "ttl": None if f.ttl is None else str(f.ttl.ttl)}
                           for f in schema.fields],
                "clock": schema.clock,
                "key_groups": schema.key_groups,
                "sink": plan.sinks[schema.uid].name if schema.uid in plan.sinks else None,
                "sink_columns": _sink_columns(plan, schema.uid),
            }
            for schema in plan.schemas.values()
        ],
    }  # fmt: skip


def _sink_columns(plan: CheckpointPlan, uid: str) -> list[str]:
    """Columns that a row of the operator's sink may be looked for by; none where it keeps no rows."""
    sink = plan.sinks.get(uid)
    return [name for name, _ in sink.stored] if sink is not None and sink.keeps_rows else []


def _planned(plan: CheckpointPlan) -> Json:
    interval = plan.interval
    return {
        "interval": None if interval is None else {"start": iso(interval.start_ms), "end": iso(interval.end_ms)},
        "logical_time": iso(plan.logical_time_ms),
        "isolation": plan.isolation,
        "fingerprint": plan.fingerprint,
        "adopted": dict(plan.adopted),
        "losses": [f"{gap.partition} {gap.lost}: {gap.why}" for gap in plan.losses],
        "left_behind": {uid: handle.rows for uid, handle in plan.left_behind.items()},
        "slot": str(plan.slot),
    }


def _ranges(plan: CheckpointPlan, found: Checkpoint | None) -> list[Json]:
    marks = {} if found is None else found.sealed.facts.watermarks
    return [
        {
            "partition": str(tp),
            "topic": tp.topic,
            "start": bounds.start,
            "end": bounds.end,
            "pending": plan.pending.get(tp, 0),
            "watermark": _time(marks.get(tp)),
            "topic_id": plan.topic_ids.get(tp.topic),
        }
        for tp, bounds in plan.ranges.items()
    ]


def _task(found: Checkpoint, ack: Ack) -> Json:
    sink = found.sinks.get(ack.uid)
    return {
        "uid": ack.uid,
        "kind": found.plan.schemas[ack.uid].kind,
        "checkpointed_size": ack.run_bytes,
        "state_size": ack.handle.bytes,
        "rows": ack.handle.rows,
        "files": sum(s.files for s in ack.handle),
        "levels": sum(s.path.endswith("/base") for s in ack.handle),
        "segments": [segment_facts(s) for s in ack.handle],
        "keys": ack.keys,
        "read": ack.read,
        "applied": ack.applied,
        "dead_lettered": ack.dead_lettered,
        "dead_letter_rows": ack.dead_letters.rows,
        "emitted": ack.emitted,
        "sink": None if sink is None else {"name": sink.name, "segments": [segment_facts(s) for s in sink.handle]},
        "operator_state": {x.name: len(x.elements) for x in ack.operator_state.lists},
        "timings": dict(_timings(found.sealed.timings_ms, ack.uid)),
        "work_duration": sum(ms for _, ms in _timings(found.sealed.timings_ms, ack.uid)),
    }


def _timings(all_of_them: Mapping[str, int], uid: str) -> Iterator[tuple[str, int]]:
    """Steps that name an operator behind a dot, as in `fold.aircraft`."""
    for step, ms in all_of_them.items():
        name, dot, of = step.partition(".")
        if dot and of == uid:
            yield name, ms


def segment_facts(s: Segment) -> Json:
    """A segment: the table, the version that readers open, and which checkpoints' rows it holds."""
    return {
        "path": s.path,
        "table": s.path.rpartition("/")[2],
        "version": s.version,
        "after": s.after,
        "through": s.through,
        "rows": s.rows,
        "bytes": s.bytes,
        "files": s.files,
    }


def versions(handle: StateHandle) -> str:
    """`base 3 + runs 12`: the tables of a handle with the versions that are read; empty where there are none."""
    return " + ".join(f"{s.path.rpartition('/')[2]} {s.version}" for s in handle)


def _time(ms: int | None) -> str | None:
    return None if ms is None else iso(ms)
