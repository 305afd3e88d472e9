"""Broadcast states in Python; the twin of `engine.broadcasting`."""

from collections.abc import Mapping, Sequence
from typing import Any

from tidemark.adapters.memory_layouts import state_rows
from tidemark.adapters.memory_merge import resolved
from tidemark.adapters.memory_tables import MemoryTables
from tidemark.model.copies import TableVersion, copied_rows
from tidemark.model.plan import CheckpointPlan
from tidemark.model.ttl import Now
from tidemark.pipeline import Pipeline
from tidemark.ports import ForeignTables
from tidemark.processing.broadcasts import broadcast_records


def broadcast_values(
    tables: MemoryTables,
    pipeline: Pipeline,
    plan: CheckpointPlan,
    runs: Mapping[str, Sequence[str]],
    now: Now,
) -> dict[str, dict[Any, Any]]:
    """Per uid of a broadcast state its records by key, as of the plan's barrier; see `engine.broadcasting`."""
    found: dict[str, dict[Any, Any]] = {}
    for broadcast in pipeline.broadcast:
        rows = state_rows(tables, plan.schemas[broadcast.uid], plan.handles[broadcast.uid])
        rows += [row for path in runs.get(broadcast.uid, ()) for row in tables.files[path]]
        state = resolved(plan.schemas[broadcast.uid], rows, now)
        found[broadcast.uid] = broadcast_records(broadcast, state.values())
    return found


def copied(
    tables: MemoryTables, pipeline: Pipeline, plan: CheckpointPlan, foreign: ForeignTables
) -> dict[str, list[dict[str, Any]]]:
    """Per uid of `plan.copies` the run that replaces its state by the planned version."""
    found = {}
    for uid in plan.copies:
        at = TableVersion(id=plan.broadcast_ids[uid], version=plan.broadcast_versions[uid])
        schema = plan.schemas[uid]
        before = resolved(schema, state_rows(tables, schema, plan.handles[uid]), Now())
        found[uid] = copied_rows(plan, uid, foreign.rows(pipeline.tables[uid], at), before)
    return found
