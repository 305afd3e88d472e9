"""Freezes a version of every foreign table, and decides which of them the checkpoint copies."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidemark.coordinator.plans.inputs import Parent
from tidemark.declare.pipeline import Broadcast, Pipeline
from tidemark.errors import DataLostError, UsageError
from tidemark.model.checkpoint.broadcast_copies import TableVersion
from tidemark.ports import ForeignTables, PlanRequest

_SAFE = "every completed checkpoint and older restore point is intact; nothing was written."


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCopies:
    """Version and table id of each broadcast state that copies a table, by uid; and the uids that must copy it now."""

    versions: Mapping[str, int] = field(default_factory=dict)
    ids: Mapping[str, str] = field(default_factory=dict)
    copies: tuple[str, ...] = ()


def plan_copies(
    pipeline: Pipeline,
    request: PlanRequest,
    parent: Parent,
    tables: ForeignTables | None,
    recorded: Mapping[str, TableVersion] | None = None,
) -> PlannedCopies:
    """Looks at every foreign table once, so that all attempts of the plan copy the same version.

    A version is copied if the state does not hold it yet. The table is read here already, because a table that does not
    fit its declaration must not become part of a plan that no attempt can finish. A plan that repeats recorded
    checkpoints takes their versions from `recorded`, by uid; for any other table the parent's version stays.

    Raises:
        DeclarationError: the table does not fit its declaration.
        NotFoundError: the table does not exist.
        DataLostError: the table was rolled back or replaced, and the request does not accept that.
        StateOverflowError: the table has more than `max_keys` rows.
        StoreError: the table cannot be read.
    """
    found = PlannedCopies()
    schemas = pipeline.schemas()
    for uid, broadcast in pipeline.tables.items():
        if tables is None:
            raise UsageError(f"{uid}: no access to foreign tables", next="this is a defect of Tidemark: report it.")
        before = _before(uid, parent)
        now = None if recorded is None else recorded.get(uid, before)
        if now is None:
            now = _newest(broadcast, tables, None if request.accept_loss else before)
        old = parent.schemas.get(uid)
        is_held = old is not None and old.fingerprint == schemas[uid].fingerprint and before == now
        if not is_held:
            tables.rows(broadcast, now)
        found = PlannedCopies(
            versions={**found.versions, uid: now.version},
            ids={**found.ids, uid: now.id},
            copies=found.copies if is_held else (*found.copies, uid),
        )
    return found


def _newest(broadcast: Broadcast, tables: ForeignTables, before: TableVersion | None) -> TableVersion:
    now = tables.newest(broadcast)
    if before is not None:
        _refuse_older(broadcast.uid, before, now)
    return now


def _before(uid: str, parent: Parent) -> TableVersion | None:
    if uid not in parent.broadcast_versions:
        return None
    return TableVersion(id=parent.broadcast_ids[uid], version=parent.broadcast_versions[uid])


def _refuse_older(uid: str, before: TableVersion, now: TableVersion) -> None:
    if before.id != now.id:
        what = f"was replaced: its id was {before.id}, now it is {now.id}"
    elif now.version < before.version:
        what = f"was rolled back: version {before.version} was copied, the newest is {now.version}"
    else:
        return
    raise DataLostError(
        f"data lost: the table of broadcast state {uid} {what}",
        safe=_SAFE,
        next="restore the table; to continue with the current one, repeat with --accept-loss.",
    )
