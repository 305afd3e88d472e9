"""From a row to its source: which checkpoint last changed a key, which DAG run that was, which offsets it read (Q4)."""

from collections.abc import Sequence
from datetime import date, datetime
from typing import Any

from tidemark.context import Context
from tidemark.errors import NotFoundError
from tidemark.model.checkpoint.checkpoint_facts import iso
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.operations import reads
from tidemark.operations.reads import parse_key, schema_of
from tidemark.web import history_cache
from tidemark.web.history_json import Json

_EXACT = 2**53
"""Greatest whole number that every reader of JSON keeps."""


def find_origin(context: Context, name: str, uid: str, key: Sequence[str], checkpoint: int | None = None) -> Json:
    """The state of a key, and the checkpoint that changed it last.

    For the change before that, ask with the parent of the checkpoint in the answer.

    Args:
        context: of this process.
        name: the pipeline.
        uid: the operator.
        key: the key columns' values as text.
        checkpoint: the state as of this id; the newest one of the live timeline without it.

    Raises:
        NotFoundError: no such pipeline, checkpoint, operator or key.
        UsageError: the key has another number of columns, or a value does not fit.
        StoreError: a file of the state is gone.
    """
    found = reads.get_checkpoint(context, history_cache.require_planned(context, name), checkpoint)
    schema = schema_of(found, uid)
    parse_key(schema, key)
    rows = reads.read_state(context, name, uid, checkpoint=found.id, key=key).to_pylist(maps_as_pydicts="strict")
    if not rows:
        raise NotFoundError(
            f"{uid} has no key {', '.join(key)!r} at {found.plan.name}",
            safe="nothing was changed.",
            next="look at the spelling, or ask at an earlier checkpoint: it may have been cleared or have expired.",
        )
    row = {column: plain(value) for column, value in rows[0].items()}
    changed = int(row.pop("_changed"))
    return {
        "uid": uid,
        "key": list(key),
        "as_of": found.plan.name,
        "row": row,
        "changed": describe_change(context, name, changed, uid),
    }


def describe_change(context: Context, name: str, checkpoint: int, uid: str) -> Json:
    """The checkpoint that changed a row, or emitted it; fewer fields where its manifest is gone.

    Args:
        context: of this process.
        name: the pipeline.
        checkpoint: its id.
        uid: the operator whose row it is.
    """
    made = context.coordinator(name).timelines.find(checkpoint)
    told: Json = {"checkpoint": checkpoint, "name": f"chk-{checkpoint}", "known": made is not None}
    if made is None:
        return told
    return told | {
        "run": made.plan.origin,
        "timeline": made.plan.slot.timeline,
        "parent": made.plan.parent,
        "logical_time": iso(made.plan.logical_time_ms),
        "ranges": [
            {"partition": str(tp), "start": r.start, "end": r.end}
            for tp, r in made.plan.ranges.items()
            if tp.topic in topics_of(made.plan, uid) and not r.is_empty
        ],
    }


def topics_of(plan: CheckpointPlan, uid: str) -> set[str]:
    """Topics that an operator may have read: its own one of a broadcast state, all other sources of any other."""
    if uid in plan.sources:
        return set(plan.sources[uid])
    return {topic for name, topics in plan.sources.items() if name not in plan.schemas for topic in topics}


def plain(value: Any) -> Any:  # noqa: ANN401
    """A value as JSON; what not every reader of JSON keeps exactly becomes text."""
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
