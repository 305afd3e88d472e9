"""Copies of external tables: the run that replaces a broadcast state by a new version of the table."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.schema.key_groups import group_of

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableVersion:
    """A version of a table, and the id that distinguishes it from another table at the same path.

    Attributes:
        id: Delta's id of the table.
        version: Delta version.
    """

    id: str
    version: int


def copied_rows(
    plan: CheckpointPlan, uid: str, records: Iterable[Mapping[str, Any]], before: Iterable[tuple[Any, ...]]
) -> list[dict[str, Any]]:
    """Returns the run: a full value for every key of the version, and a tombstone for every key that it lacks.

    Args:
        plan: the plan.
        uid: the broadcast state.
        records: rows of the version, by field; keys are unique and not null.
        before: the current keys of the state.

    Returns:
        Rows with the columns of `run_columns`, sorted by (key group, key).
    """
    schema, version = plan.schemas[uid], plan.broadcast_versions[uid]
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for record in records:
        key = tuple(record[k.source] for k in schema.keys)
        rows[key] = {f.name: _latest(record[f.source], version) for f in schema.fields} | {"_kind": "value"}
    for key in before:
        rows.setdefault(key, {f.name: None for f in schema.fields} | {"_kind": "tombstone"})
    accessed = {"_first_at": None, "_last_at": plan.watermark_ms or 0, "_changed": plan.id}
    names = [k.name for k in schema.keys]
    made = [
        {**dict(zip(names, key, strict=True)), **row, **accessed, "_key_group": group_of(schema, key)}
        for key, row in rows.items()
    ]
    return sorted(made, key=lambda r: (r["_key_group"], tuple(r[name] for name in names)))


def _latest(value: Any, version: int) -> dict[str, Any]:
    return {"at": _EPOCH, "topic": "", "partition": 0, "offset": version, "value": value}
