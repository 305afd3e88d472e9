"""Broadcast states in Python; the twin of `engine.broadcasting`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tidemark.declare.pipeline import Pipeline
from tidemark.model.checkpoint.broadcast_copies import TableVersion, copied_rows
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.core.ttl import Now
from tidemark.model.schema.lookup_joins import Join
from tidemark.ports import ForeignTables
from tidemark.processing.broadcasts import broadcast_records, too_large
from tidemark.testing.twin.fold import Decoded, Key
from tidemark.testing.twin.layouts import state_rows
from tidemark.testing.twin.merge import resolved
from tidemark.testing.twin.tables import MemoryTables


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBroadcastStates:
    """The broadcast states of one attempt as of its barrier; see `engine.broadcasting`."""

    tables: MemoryTables
    pipeline: Pipeline
    plan: CheckpointPlan
    now: Now
    runs: Mapping[str, Sequence[str]]

    def values(self) -> dict[str, dict[Any, Any]]:
        """Per uid its records by key."""
        return {b.uid: broadcast_records(b, self._state(b.uid).values()) for b in self.pipeline.broadcast}

    def joined(self, records: Iterable[Decoded], joins: Sequence[Join]) -> list[Decoded]:
        """Records with the row of each joined state as a field more, null where no row has the key."""
        found = list(records)
        for join in joins if found else ():
            rows = self._rows(join.uid)
            found = [replace(r, fields={**r.fields, join.uid: rows.get(tuple(map(r.at, join.on)))}) for r in found]
        return found

    def _rows(self, uid: str) -> dict[Key, dict[str, Any]]:
        (broadcast,) = (b for b in self.pipeline.broadcast if b.uid == uid)
        state, names = self._state(uid), [name for name, _ in broadcast.source.schema.fields]
        if len(state) > broadcast.max_keys:
            raise too_large(broadcast)
        return {key: {name: row[name] for name in names} for key, row in state.items()}

    def _state(self, uid: str) -> dict[Key, dict[str, Any]]:
        rows = state_rows(self.tables, self.plan.schemas[uid], self.plan.handles[uid])
        rows += [row for path in self.runs.get(uid, ()) for row in self.tables.files[path]]
        return resolved(self.plan.schemas[uid], rows, self.now)


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
