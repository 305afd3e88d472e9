"""The overview of a pipeline: health, counts, the latest checkpoints, history, percentiles, charts, timelines."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import islice, takewhile

from tidemark.answers.checkpoint_overview import (
    AnswerTrouble,
    ChartPoint,
    CheckpointLine,
    CheckpointsOverview,
    CountsByStatus,
    LatestCheckpoints,
    LatestRestore,
    PipelineHealth,
    ReadIds,
    StopReason,
)
from tidemark.answers.dead_letter_facts import DeadLetterOverview
from tidemark.answers.publication_facts import PublicationStatus
from tidemark.answers.run_facts import RunFacts
from tidemark.answers.timeline_facts import PinnedCheckpoint, RunProducts, SavepointFacts, TimelineNode
from tidemark.context import Context
from tidemark.coordinator.records.timeline_tree import Branch, branch
from tidemark.coordinator.records.timelines import Stops
from tidemark.errors import CorruptObjectError
from tidemark.glance import glance_at
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.store_objects import Genesis
from tidemark.operations import observability, runs, savepoints
from tidemark.operations import timelines as timeline_operations
from tidemark.operations.dead_letters import redriving
from tidemark.operations.publications import publishing
from tidemark.operations.timelines import describe_timeline
from tidemark.web import history_cache
from tidemark.web.history import CheckpointStatus, History, HistoryEntry
from tidemark.web.history_lines import HistoryQuery, counts_as_failure, line_of, point_of

POINTS = 1000
"""Points of a chart at most."""


def get_overview(context: Context, name: str, query: HistoryQuery) -> CheckpointsOverview:
    """Flink's `/checkpoints` of a pipeline, with the checkpoints that match a query.

    Raises:
        NotFoundError: no such pipeline.
        StoreError: the store could not be read.
    """
    context = glance_at(context)
    entries, remembered = history_cache.read_history(context, name)
    discarded = remembered.history.discarded
    branches, pins, trouble = _related(context, name)

    def line(entry: HistoryEntry) -> CheckpointLine:
        return line_of(entry, pins.get(entry.id, ()), discarded=entry.id in discarded)

    def newest(found: Iterator[HistoryEntry]) -> CheckpointLine | None:
        return next(map(line, found), None)

    completed = tuple(e for e in entries if e.status is CheckpointStatus.COMPLETED)
    matching = [e for e in entries if query.takes(e, pins.get(e.id, ()))]
    restores = [b.genesis for b in branches if b.genesis is not None and b.genesis.why == "restore"]
    live = next((b for b in branches if b.is_live), None)
    return CheckpointsOverview(
        pipeline=name,
        counts=_counts(entries, restored=len(restores)),
        summary=remembered.summary(completed),
        latest=LatestCheckpoints(
            completed=newest(iter(completed)),
            savepoint=newest(e for e in completed if e.id in pins),
            failed=newest(e for e in entries if e.status is CheckpointStatus.FAILED),
            restored=_restored(restores),
        ),
        history=[line(e) for e in matching[query.offset : query.offset + query.limit]],
        matching=len(matching),
        health=_health(context, name, live, remembered.history),
        trouble=trouble,
        run=None if live is None or live.newest is None else _unfinished_run(context, live.newest),
        indexed=ReadIds(read=remembered.history.total - remembered.history.unread, of=remembered.history.total),
    )


def list_points(context: Context, name: str, last: int) -> list[ChartPoint]:
    """The newest completed checkpoints of the live timeline and its ancestors, oldest first, for charts.

    Raises:
        NotFoundError: no such pipeline.
    """
    context = glance_at(context)
    _, remembered = history_cache.read_history(context, name)
    timelines = context.coordinator(name).timelines
    live = branch(timelines, timelines.live(), timelines.live())
    found = list(islice(_ancestry(remembered.history, live), min(last, POINTS)))
    return [point_of(e) for e in reversed(found)]


def list_timelines(context: Context, name: str) -> list[TimelineNode]:
    """The tree: every timeline, in the order in which they began, with the savepoints on it.

    Raises:
        NotFoundError: no such pipeline.
    """
    context = glance_at(context)
    on: dict[str, list[PinnedCheckpoint]] = {}
    for record in savepoints.open_savepoints(context, history_cache.require_planned(context, name)).list():
        on.setdefault(record.timeline, []).append(PinnedCheckpoint(name=record.name, checkpoint=record.checkpoint))
    found = timeline_operations.list_timelines(context, name)
    return [_node(b, on.get(b.timeline, [])) for b in found]


def list_publications(context: Context, name: str) -> list[PublicationStatus]:
    """Every publication that was begun, by name; the API server reads no pipeline files.

    Raises:
        NotFoundError: no such pipeline.
    """
    context = glance_at(context)
    return publishing.list_begun(context, history_cache.require_planned(context, name))


def list_dead_letters(context: Context, name: str) -> DeadLetterOverview:
    """The dead letters of the live timeline by operator and reason, and the requests to redrive them.

    Raises:
        NotFoundError: no such pipeline.
        StoreError: a dead-letter table is damaged.
    """
    context = glance_at(context)
    return redriving.list_letters(context, history_cache.require_planned(context, name))


def list_savepoints(context: Context, name: str, *, disposed: bool = False) -> list[SavepointFacts]:
    """Every savepoint, newest first.

    Raises:
        NotFoundError: no such pipeline.
    """
    context = glance_at(context)
    found = savepoints.open_savepoints(context, history_cache.require_planned(context, name)).list(disposed=disposed)
    return [savepoints.describe_savepoint(context, name, record) for record in reversed(found)]


def find_made_by(context: Context, name: str, dag_id: str, run_id: str) -> RunProducts:
    """Finds the checkpoints that a DAG run planned, newest first, and the timelines and savepoints that it created.

    Only checkpoints that were read so far.

    Raises:
        NotFoundError: no such pipeline.
    """
    context = glance_at(context)
    entries, _ = history_cache.read_history(context, name)
    begun = [b.genesis for b in timeline_operations.list_timelines(context, name) if b.genesis is not None]
    pinned = savepoints.open_savepoints(context, name).list(disposed=True)
    return RunProducts(
        pipeline=name,
        checkpoints=[e.id for e in entries if e.origin == run_id],
        timelines=[g.timeline for g in begun if g.request == run_id],
        savepoints=[r.name for r in pinned if r.origin == f"{dag_id} {run_id}"],
    )


def _related(context: Context, name: str) -> tuple[list[Branch], Mapping[int, Sequence[str]], AnswerTrouble | None]:
    """Timelines and pins; if one of their objects is damaged, none of them, and the reason."""
    try:
        return timeline_operations.list_timelines(context, name), savepoints.open_savepoints(context, name).pins(), None
    except CorruptObjectError as error:
        return [], {}, AnswerTrouble(what=error.what, safe=error.safe, next=error.next)


def _unfinished_run(context: Context, newest: Checkpoint) -> RunFacts | None:
    return None if newest.plan.covers else runs.describe(context, newest)


def _health(context: Context, name: str, live: Branch | None, history: History) -> PipelineHealth:
    newest = None if live is None else next(_ancestry(history, live), None)
    since = 0 if newest is None else newest.id
    later = takewhile(lambda e: e.id > since, history.entries)
    on_live = (e for e in later if live is not None and e.slot.timeline == live.timeline)
    failures = sum(e.status is CheckpointStatus.FAILED and counts_as_failure(e) for e in on_live)
    at = None if live is None else observability.measure_deadline(context, name, live)
    stop = Stops(context.coordinator(name).objects).current()
    now = context.clock.now_ms()
    return PipelineHealth(
        live=None if live is None else live.timeline,
        newest=None if newest is None else newest.id,
        age=None if newest is None else max(0, now - (newest.ack_ms or newest.trigger_ms)),
        deadline=context.settings.deadline_ms(name),
        late=at is not None and at.is_late,
        lag=None if newest is None else sum(newest.pending.values()),
        failures_in_row=failures,
        stopped=None if stop is None else StopReason(why=stop.why, savepoint=stop.savepoint, at=stop.at_ms),
        now=now,
    )


def _restored(restores: Sequence[Genesis]) -> LatestRestore | None:
    """The newest restore."""
    if not restores:
        return None
    newest = max(restores, key=lambda g: g.at_ms)
    return LatestRestore(
        id=newest.parent,
        restore_timestamp=newest.at_ms,
        is_savepoint=bool(newest.savepoint),
        external_path=newest.savepoint or None,
        timeline=newest.timeline,
    )


def _counts(entries: Sequence[HistoryEntry], *, restored: int) -> CountsByStatus:
    by = {status: sum(e.status is status for e in entries) for status in CheckpointStatus}
    return CountsByStatus(
        total=len(entries),
        in_progress=by[CheckpointStatus.IN_PROGRESS],
        completed=by[CheckpointStatus.COMPLETED],
        failed=by[CheckpointStatus.FAILED],
        restored=restored,
        damaged=by[CheckpointStatus.DAMAGED],
    )


def _node(found: Branch, on: Sequence[PinnedCheckpoint]) -> TimelineNode:
    facts = describe_timeline(found)
    return TimelineNode(**{f.name: getattr(facts, f.name) for f in fields(facts)}, savepoints=on)


def _ancestry(history: History, live: Branch) -> Iterator[HistoryEntry]:
    """Completed checkpoints of a timeline and of its ancestors, newest first."""
    begun = None if live.genesis is None else live.genesis.parent
    number = begun if live.newest is None else live.newest.id
    while number is not None and (found := history.completed_entry(number)) is not None:
        yield found
        number = found.parent
