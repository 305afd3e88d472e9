"""The page of a pipeline: health, counts, the latest of each kind, history, percentiles, charts, timelines."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, takewhile

from tidemark.context import Context
from tidemark.coordinator.records.timeline_tree import Branch, branch
from tidemark.coordinator.records.timelines import Stops
from tidemark.errors import CorruptObjectError
from tidemark.model.checkpoint.store_objects import Genesis
from tidemark.operations import observability, savepoints
from tidemark.operations import timelines as timeline_operations
from tidemark.operations.timelines import branch_facts
from tidemark.web import history_cache
from tidemark.web.history import CheckpointStatus, History, HistoryEntry
from tidemark.web.history_json import HistoryQuery, Json, counts, line, point

POINTS = 1000
"""Points of a chart at most."""


def get_overview(context: Context, name: str, query: HistoryQuery) -> Json:
    """Flink's `/checkpoints` of a pipeline, with the lines that a query wants.

    Raises:
        NotFoundError: no such pipeline.
        StoreError: the store could not be read.
    """
    entries, remembered = history_cache.read_history(context, name)
    discarded = remembered.history.discarded
    branches, pins, trouble = _related(context, name)

    def told(entry: HistoryEntry | None) -> Json | None:
        return None if entry is None else line(entry, pins.get(entry.id, ()), discarded=entry.id in discarded)

    completed = tuple(e for e in entries if e.status is CheckpointStatus.COMPLETED)
    wanted = [e for e in entries if query.takes(e, pins.get(e.id, ()))]
    restores = [b.genesis for b in branches if b.genesis is not None and b.genesis.why == "restore"]
    latest = {
        "completed": told(next(iter(completed), None)),
        "savepoint": told(next((e for e in completed if e.id in pins), None)),
        "failed": told(next((e for e in entries if e.status is CheckpointStatus.FAILED), None)),
        "restored": _restored(restores),
    }
    return {
        "pipeline": name,
        "counts": _counts(entries) | {"restored": len(restores)},
        "summary": remembered.summary(completed),
        "latest": latest,
        "history": [told(e) for e in wanted[query.offset : query.offset + query.limit]],
        "matching": len(wanted),
        "health": _health(context, name, next((b for b in branches if b.is_live), None), remembered.history),
        "trouble": trouble,
        "indexed": {"read": remembered.history.total - remembered.history.unread, "of": remembered.history.total},
    }


def list_points(context: Context, name: str, last: int) -> list[Json]:
    """The newest completed checkpoints of the live timeline and what it came from, oldest first, for charts.

    Raises:
        NotFoundError: no such pipeline.
    """
    _, remembered = history_cache.read_history(context, name)
    timelines = context.coordinator(name).timelines
    live = branch(timelines, timelines.live(), timelines.live())
    found = list(islice(_ancestry(remembered.history, live), min(last, POINTS)))
    return [point(e) for e in reversed(found)]


def list_timelines(context: Context, name: str) -> list[Json]:
    """The tree: every timeline, in the order in which they began, with the savepoints on it.

    Raises:
        NotFoundError: no such pipeline.
    """
    on: dict[str, list[Json]] = {}
    for record in savepoints.open_savepoints(context, history_cache.require_planned(context, name)).list():
        on.setdefault(record.timeline, []).append({"name": record.name, "checkpoint": record.checkpoint})
    found = timeline_operations.list_timelines(context, name)
    return [{**branch_facts(b), "savepoints": on.get(b.timeline, [])} for b in found]


def list_savepoints(context: Context, name: str, *, disposed: bool = False) -> list[Json]:
    """Every savepoint, newest first.

    Raises:
        NotFoundError: no such pipeline.
    """
    found = savepoints.open_savepoints(context, history_cache.require_planned(context, name)).list(disposed=disposed)
    return [savepoints.describe_savepoint(context, name, record) for record in reversed(found)]


def find_made_by(context: Context, name: str, dag_id: str, run_id: str) -> Json:
    """What a DAG run has made: checkpoints that it planned, newest first, timelines that it began, savepoints.

    Only checkpoints that were read so far.

    Raises:
        NotFoundError: no such pipeline.
    """
    entries, _ = history_cache.read_history(context, name)
    begun = [b.genesis for b in timeline_operations.list_timelines(context, name) if b.genesis is not None]
    pinned = savepoints.open_savepoints(context, name).list(disposed=True)
    return {
        "checkpoints": [e.id for e in entries if e.origin == run_id],
        "timelines": [g.timeline for g in begun if g.request == run_id],
        "savepoints": [r.name for r in pinned if r.origin == f"{dag_id} {run_id}"],
    }


def _related(context: Context, name: str) -> tuple[list[Branch], Mapping[int, Sequence[str]], Json | None]:
    """Timelines and pins; none, and why, where an object of theirs is damaged: the lines are shown all the same."""
    try:
        return timeline_operations.list_timelines(context, name), savepoints.open_savepoints(context, name).pins(), None
    except CorruptObjectError as error:
        return [], {}, {"what": error.what, "safe": error.safe, "next": error.next}


def _health(context: Context, name: str, live: Branch | None, history: History) -> Json:
    newest = None if live is None else next(_ancestry(history, live), None)
    since = 0 if newest is None else newest.id
    later = takewhile(lambda e: e.id > since, history.entries)
    on_live = (e for e in later if live is not None and e.slot.timeline == live.timeline)
    failures = sum(e.status is CheckpointStatus.FAILED and counts(e) for e in on_live)
    at = None if live is None else observability.measure_deadline(context, name, live)
    stop = Stops(context.coordinator(name).objects).standing()
    now = context.clock.now_ms()
    return {
        "live": None if live is None else live.timeline,
        "newest": None if newest is None else newest.id,
        "age": None if newest is None else max(0, now - (newest.ack_ms or newest.trigger_ms)),
        "deadline": context.settings.deadline_ms(name),
        "late": at is not None and at.is_late,
        "lag": None if newest is None else sum(newest.pending.values()),
        "failures_in_row": failures,
        "stopped": None if stop is None else {"why": stop.why, "savepoint": stop.savepoint, "at": stop.at_ms},
        "now": now,
    }


def _restored(restores: Sequence[Genesis]) -> Json | None:
    """The newest restore."""
    if not restores:
        return None
    newest = max(restores, key=lambda g: g.at_ms)
    return {
        "id": newest.parent,
        "restore_timestamp": newest.at_ms,
        "is_savepoint": bool(newest.savepoint),
        "external_path": newest.savepoint or None,
        "timeline": newest.timeline,
    }


def _counts(entries: Sequence[HistoryEntry]) -> Json:
    by = {status: sum(e.status is status for e in entries) for status in CheckpointStatus}
    return {
        "total": len(entries),
        "in_progress": by[CheckpointStatus.IN_PROGRESS],
        "completed": by[CheckpointStatus.COMPLETED],
        "failed": by[CheckpointStatus.FAILED],
        "damaged": by[CheckpointStatus.DAMAGED],
    }


def _ancestry(history: History, live: Branch) -> Iterator[HistoryEntry]:
    """Completed checkpoints of a timeline, newest first, on into those that it came from."""
    begun = None if live.genesis is None else live.genesis.parent
    number = begun if live.newest is None else live.newest.id
    while number is not None and (found := history.completed(number)) is not None:
        yield found
        number = found.parent
