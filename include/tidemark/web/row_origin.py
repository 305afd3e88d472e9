"""The source of a row of state: the checkpoint that last changed its key, its DAG run, and the offsets it read."""

from collections.abc import Sequence
from datetime import date, datetime
from typing import Any

from tidemark.answers.checkpoint_facts import iso
from tidemark.answers.row_sources import ChangedRange, ChangeOrigin, RowOrigin
from tidemark.context import Context
from tidemark.errors import NotFoundError
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.checkpoint.redrive import without_paths
from tidemark.model.core.offsets import OffsetCoverage, Ranges, TopicPartition
from tidemark.model.schema.event_windows import END, START
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.operations import reads
from tidemark.operations.reads import parse_key, state_schema_of
from tidemark.web import history_cache

_EXACT = 2**53
"""The largest integer that every reader of JSON represents exactly."""


def find_origin(context: Context, name: str, uid: str, key: Sequence[str], checkpoint: int | None = None) -> RowOrigin:
    """The state of a key, and the checkpoint that changed it last.

    For the change before that, pass the parent of the checkpoint in the answer.

    Args:
        context: of this process.
        name: the pipeline.
        uid: the operator.
        key: the key columns' values as text.
        checkpoint: an id; None = the newest checkpoint of the live timeline.

    Raises:
        NotFoundError: no such pipeline, checkpoint, operator or key.
        UsageError: the key has another number of columns, or a value does not fit.
        StoreError: a file of the state is gone.
    """
    found = reads.get_checkpoint(context, history_cache.require_planned(context, name), checkpoint)
    row = _newest(context, found, state_schema_of(found, uid), key)
    if row is None:
        raise NotFoundError(
            f"{uid} has no key {', '.join(key)!r} at {found.plan.name}",
            safe="nothing was changed.",
            next="check the spelling, or name an earlier checkpoint: the key may have been cleared or have expired.",
        )
    row = {column: plain(value) for column, value in row.items()}
    changed = int(row.pop("_changed"))
    change = describe_change(context, name, changed, uid)
    return RowOrigin(uid=uid, key=list(key), as_of=found.plan.name, row=row, changed=change)


def _newest(context: Context, found: Checkpoint, schema: OperatorSchema, key: Sequence[str]) -> dict[str, Any] | None:
    """The row of a key that was changed last, in a window that the key names: of a session, also in a part of it.

    Sessions grow: at an earlier checkpoint, the row of a session had other bounds, or was two rows.
    """
    wanted, own = parse_key(schema, key), len(schema.own_keys)
    grows = schema.window is not None and schema.window.is_merged and len(wanted) > own
    read = reads.read_state(
        context, found.plan.pipeline, schema.uid, checkpoint=found.id, key=key[:own] if grows else key
    )
    rows: list[dict[str, Any]] = read.to_pylist(maps_as_pydicts="strict")
    if grows:
        bounds = dict(zip((k.name for k in schema.keys), wanted, strict=True))
        rows = [row for row in rows if bounds[START] <= row[START] and row[END] <= bounds[END]]
    return max(rows, key=lambda row: int(row["_changed"]), default=None)


def describe_change(context: Context, name: str, checkpoint: int, uid: str) -> ChangeOrigin:
    """The checkpoint that changed a row, or emitted it.

    Args:
        context: of this process.
        name: the pipeline.
        checkpoint: its id.
        uid: the operator whose row it is.
    """
    made = context.coordinator(name).timelines.find(checkpoint)
    if made is None:
        return ChangeOrigin(checkpoint=checkpoint, name=f"chk-{checkpoint}", known=False)
    return ChangeOrigin(
        checkpoint=checkpoint,
        name=f"chk-{checkpoint}",
        known=True,
        run=made.plan.origin,
        timeline=made.plan.slot.timeline,
        parent=made.plan.parent,
        logical_time=iso(made.plan.logical_time_ms),
        ranges=[
            ChangedRange(partition=str(tp), start=r.start, end=r.end)
            for tp, r in made.plan.ranges.items()
            if tp.topic in topics_of(made.plan, uid) and not r.is_empty
        ],
        redriven=[
            ChangedRange(partition=str(tp), start=r.start, end=r.end)
            for tp, found in redriven_of(made.plan, uid).items()
            for r in found
        ],
    )


def redriven_of(plan: CheckpointPlan, uid: str | None) -> dict[TopicPartition, Ranges]:
    """The offsets of redriven records that an operator got, also through others if it has a sink; None = any operator.

    Letters of a topic that was recreated are left out: their offsets hold other records now.
    """
    found = OffsetCoverage()
    for redrive in plan.redrives:
        if uid is None or uid == redrive.uid or uid in redrive.sinks:
            found |= redrive.coverage
    return without_paths(found).by_name(plan.topic_ids)


def topics_of(plan: CheckpointPlan, uid: str) -> set[str]:
    """Topics whose records may have reached an operator or an output.

    A broadcast state reads its own topic. Of other operators most plans do not say it: then all other topics count.
    """
    source = uid if uid in plan.sources else plan.source_of(uid)
    if source is not None:
        return set(plan.sources[source])
    return {topic for name, topics in plan.sources.items() if name not in plan.schemas for topic in topics}


def plain(value: Any) -> Any:  # noqa: ANN401
    """A value as JSON; a value that a reader of JSON could round becomes text."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set):
        return [plain(v) for v in value]
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) and value - value != 0:
        return repr(value)
    if isinstance(value, int) and abs(value) > _EXACT:
        return str(value)
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
