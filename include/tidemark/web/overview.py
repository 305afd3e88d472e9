"""The overview of a pipeline: verdict, health, counts, the latest checkpoints, history, percentiles, charts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from itertools import islice
from weakref import WeakKeyDictionary

from tidemark.answers.checkpoint_overview import (
    AnswerTrouble,
    ChartMark,
    ChartSeries,
    CheckpointLine,
    CheckpointsOverview,
    CountsByStatus,
    LatestCheckpoints,
    LatestRestore,
    ReadIds,
)
from tidemark.answers.dead_letter_facts import DeadLetterOverview
from tidemark.answers.run_facts import BacklogFacts, RunFacts
from tidemark.answers.timeline_facts import PinnedCheckpoint, RunProducts, SavepointFacts, TimelineNode
from tidemark.context import Context
from tidemark.coordinator.records.timeline_tree import Branch
from tidemark.errors import CorruptObjectError
from tidemark.glance import glance_at, lasting
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.store_objects import Genesis
from tidemark.operations import runs, savepoints
from tidemark.operations import timelines as timeline_operations
from tidemark.operations.dead_letters import redriving
from tidemark.operations.timelines import describe_timeline
from tidemark.web import history_cache
from tidemark.web.health import LiveLine, RunSchedule, measure_health
from tidemark.web.history import CheckpointStatus, HistoryEntry
from tidemark.web.history_lines import HistoryQuery, line_of, point_of
from tidemark.web.scope import ALL, LIVE, Scope, parse_scope

_LETTERS: "WeakKeyDictionary[Context, dict[str, tuple[object, DeadLetterOverview]]]" = WeakKeyDictionary()
"""The last answer about dead letters by pipeline, which reads every manifest, and the state of the store behind it."""
POINTS = 1000
"""Points of a chart at most, and marks."""


def get_overview(
    context: Context,
    name: str,
    query: HistoryQuery,
    scope: str = ALL,
    schedule: RunSchedule | None = None,
    *,
    more: bool = True,
) -> CheckpointsOverview:
    """Flink's `/checkpoints` of a pipeline, with the checkpoints that match a query.

    Args:
        context: of this process.
        name: the pipeline.
        query: selects the checkpoints of the history.
        scope: selects those that are counted, summarized and latest; see `parse_scope`.
        schedule: of the pipeline's DAG, for the verdict.
        more: read one more portion of a history that is not read whole; the first answer of a page has no time for it.

    Raises:
        NotFoundError: no such pipeline, or no such timeline.
        UsageError: the scope is invalid.
        StoreError: the store could not be read.
    """
    context = glance_at(context)
    entries, remembered = history_cache.read_history(context, name, least=query.offset + query.limit, more=more)
    history = remembered.history
    branches, pins, trouble = _related(context, name)
    chosen = parse_scope(scope, branches)

    def line(entry: HistoryEntry) -> CheckpointLine:
        return line_of(entry, pins.get(entry.id, ()), discarded=entry.id in history.discarded)

    within = tuple(e for e in entries if chosen.takes(e))
    completed = tuple(e for e in within if e.status is CheckpointStatus.COMPLETED)
    matching = query.select(entries, pins)
    restores = [g for g in _geneses(branches, chosen) if g.why == "restore"]
    live = next((b for b in branches if b.is_live), None)
    line_now = LiveLine(pipeline=name, live=live, history=history, damage="" if trouble is None else trouble.what)
    health, verdict = measure_health(context, line_now, schedule)
    return CheckpointsOverview(
        pipeline=name,
        verdict=verdict,
        scope=chosen.facts,
        counts=_counts(within, restored=len(restores)),
        summary=remembered.summary(completed),
        latest=LatestCheckpoints(
            completed=next(map(line, completed), None),
            savepoint=next((line(e) for e in completed if e.id in pins), None),
            failed=next((line(e) for e in within if e.status is CheckpointStatus.FAILED), None),
            restored=_restored(restores),
        ),
        history=[line(e) for e in matching[query.offset : query.offset + query.limit]],
        matching=len(matching),
        health=health,
        trouble=trouble,
        run=None if live is None or live.newest is None else _unfinished_run(context, live.newest),
        indexed=ReadIds(read=history.total - history.unread, of=history.total),
    )


def list_points(context: Context, name: str, last: int, scope: str = LIVE) -> ChartSeries:
    """The newest completed checkpoints of a scope, oldest first, and what happened between them, for charts.

    Args:
        context: of this process.
        name: the pipeline.
        last: number of checkpoints at most.
        scope: see `parse_scope`.

    Raises:
        NotFoundError: no such pipeline, or no such timeline.
        UsageError: the scope is invalid.
        CorruptObjectError: a timeline is damaged.
    """
    context = glance_at(context)
    entries, _ = history_cache.read_history(context, name, least=last)
    branches = timeline_operations.list_timelines(context, name)
    pins = savepoints.open_savepoints(context, name).pins()
    chosen = parse_scope(scope, branches)
    within = [e for e in entries if chosen.takes(e)]
    completed = [e for e in within if e.status is CheckpointStatus.COMPLETED]
    found = list(islice(completed, min(last, POINTS)))
    since = found[-1].trigger_ms if len(found) < len(completed) else 0
    return ChartSeries(
        scope=chosen.facts,
        points=[point_of(e, pins.get(e.id, ())) for e in reversed(found)],
        marks=[mark for mark in _marks(within, _geneses(branches, chosen)) if mark.at >= since][-POINTS:],
        of=len(completed),
    )


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
    released = history_cache.open_history(context, name).is_discarded
    return [_node(b, on.get(b.timeline, []), released) for b in found]


def get_backlog(context: Context, name: str) -> BacklogFacts:
    """How far the live timeline is behind its topics, and the progress of a run that makes several checkpoints.

    Raises:
        NotFoundError: no such pipeline.
        StoreError, CorruptObjectError: the store could not be read.
    """
    context = glance_at(context)
    return runs.describe_backlog(context, history_cache.require_planned(context, name))


def list_dead_letters(context: Context, name: str) -> DeadLetterOverview:
    """The dead letters of the live timeline by operator and reason, and the requests to redrive them.

    Raises:
        NotFoundError: no such pipeline.
        StoreError: a dead-letter table is damaged.
    """
    known = _LETTERS.setdefault(lasting(context), {})
    context = glance_at(context)
    coordinator = context.coordinator(history_cache.require_planned(context, name))
    newest = next(coordinator.checkpoints(), None)
    requests = tuple(coordinator.objects.list("redrives/"))
    at = (coordinator.timelines.live(), newest and (newest.id, newest.revision), requests)
    if name not in known or known[name][0] != at:
        known[name] = at, redriving.list_letters(context, name)
    return known[name][1]


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
    entries, _ = history_cache.read_history(context, name, more=True)
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


def _geneses(branches: Sequence[Branch], scope: Scope) -> list[Genesis]:
    """The restores and forks that began the timelines of a scope."""
    return [b.genesis for b in branches if b.genesis is not None and scope.takes_timeline(b.timeline)]


def _marks(entries: Sequence[HistoryEntry], geneses: Sequence[Genesis]) -> list[ChartMark]:
    """Failures, restores and forks, oldest first."""
    failed = [
        ChartMark(kind="failed", at=e.failed_ms or e.trigger_ms, checkpoint=e.id, label=e.failure[0])
        for e in entries
        if e.status is CheckpointStatus.FAILED
    ]
    begun = [ChartMark(kind=g.why, at=g.at_ms, checkpoint=g.parent, label=g.timeline) for g in geneses]
    return sorted([*failed, *begun], key=lambda mark: (mark.at, mark.checkpoint))


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


def _node(found: Branch, on: Sequence[PinnedCheckpoint], released: Callable[[int], bool]) -> TimelineNode:
    facts = describe_timeline(found)
    known = {f.name: getattr(facts, f.name) for f in fields(facts)}
    newest = None if facts.newest is None else int(facts.newest.removeprefix("chk-"))
    return TimelineNode(**known, savepoints=on, newest_released=newest is not None and released(newest))
