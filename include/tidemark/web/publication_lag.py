"""How far the targets of publications are behind the live timeline, and what keeps them there."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import chain, takewhile

from tidemark.answers.checkpoint_facts import iso_or_none
from tidemark.answers.publication_facts import (
    PublicationDetails,
    PublicationLag,
    PublicationStatus,
    PublicationTask,
    Verdict,
)
from tidemark.context import Context
from tidemark.coordinator.records.publication_steps import PublicationSteps
from tidemark.coordinator.records.timeline_tree import branch
from tidemark.errors import TargetChangedError
from tidemark.glance import glance_at
from tidemark.operations.publications import publishing
from tidemark.web import history_cache
from tidemark.web.health import LiveLine
from tidemark.web.history import CheckpointStatus, HistoryEntry

FindTasks = Callable[[Collection[str]], Mapping[str, PublicationTask]]
"""Finds the tasks of publications by their names."""
RUNNING = frozenset({"queued", "running", "restarting"})
"""Airflow's states of a task that is under way."""
FAILED = frozenset({"failed", "up_for_retry", "upstream_failed"})


def list_publication_lags(context: Context, name: str, find_tasks: FindTasks) -> list[PublicationLag]:
    """Every publication that was begun, or that the newest plan of the live timeline has recorded, by name.

    The API server reads no pipeline files: a publication that was not begun is known from a plan.

    Args:
        context: of this process.
        name: the pipeline.
        find_tasks: finds the tasks that publish.

    Raises:
        NotFoundError: no such pipeline.
        StoreError: the store could not be read.
    """
    context = glance_at(context)
    begun = publishing.list_begun(context, history_cache.require_planned(context, name))
    line = _live_line(context, name)
    others = _list_not_started(context, line, [one.publication for one in begun])
    found = sorted([*begun, *others], key=lambda one: one.publication)
    if not found:
        return []
    tasks, now = find_tasks([one.publication for one in found]), context.clock.now_ms()
    return [_lag(one, tasks.get(one.publication), _missing(line, one), now) for one in found]


def describe_publication(context: Context, name: str, publication: str, limit: int) -> PublicationDetails:
    """A publication, as in `list_publication_lags`, with its last steps.

    Raises:
        NotFoundError: no such pipeline or publication.
        StoreError: the store could not be read.
    """
    context = glance_at(context)
    coordinator = context.coordinator(history_cache.require_planned(context, name))
    begun = PublicationSteps(coordinator.objects).names()
    for status in _list_not_started(context, _live_line(context, name), begun) if publication not in begun else ():
        if status.publication == publication:
            return PublicationDetails(status=status, steps=[], views={})
    return publishing.describe_begun(context, name, publication, limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """What a target lacks.

    Attributes:
        newest: the newest checkpoint of the live timeline, if it was read.
        had: the checkpoint that the target has, if it was read.
        entries: the completed checkpoints that it lacks, newest first; None while older ones are not read yet.
    """

    newest: HistoryEntry | None
    had: HistoryEntry | None
    entries: Sequence[HistoryEntry] | None


def _live_line(context: Context, name: str) -> LiveLine:
    _, remembered = history_cache.read_history(context, name, more=True)
    timelines = context.coordinator(name).timelines
    live = timelines.live()
    return LiveLine(pipeline=name, live=branch(timelines, live, live), history=remembered.history)


def _list_not_started(context: Context, line: LiveLine, begun: Collection[str]) -> list[PublicationStatus]:
    """The publications that the newest plan of a timeline has recorded, without those that were begun."""
    later = (e for e in line.list_later() if e.status is not CheckpointStatus.DAMAGED)
    newest, timelines = next(chain(later, line.list_completed()), None), context.coordinator(line.pipeline).timelines
    if newest is None:
        return []
    completed = timelines.find(newest.id)
    recorded = (timelines.plan(newest.id) if completed is None else completed.plan).columns
    new = {} if recorded is None else {n: p for n, p in recorded.publications.items() if n not in begun}
    behind = sum(1 for _ in line.list_completed()) if new else 0
    return [
        PublicationStatus(
            publication=publication,
            uid=declared.uid,
            kind=declared.kind,
            place=declared.place,
            state="new",
            checkpoint=None,
            version=None,
            behind=behind,
            published_at=None,
        )
        for publication, declared in new.items()
    ]


def _missing(line: LiveLine, status: PublicationStatus) -> Missing:
    had = 0 if status.checkpoint is None else int(status.checkpoint.removeprefix("chk-"))
    newer = list(takewhile(lambda e: e.id > had, line.list_completed()))
    # A target without a checkpoint lacks all of them, and their number is known once all are read.
    is_read = not newer or newer[-1].parent is None or line.history.unread == 0
    is_whole = is_read if status.state == "new" else len(newer) >= status.behind
    return Missing(
        newest=next(line.list_completed(), None),
        had=line.history.completed_entry(had),
        entries=newer if is_whole else None,
    )


def _lag(status: PublicationStatus, task: PublicationTask | None, missing: Missing, now_ms: int) -> PublicationLag:
    verdict, why = judge(status, task)
    known, entries = {f.name: getattr(status, f.name) for f in fields(status)}, missing.entries
    first = entries[-1] if entries else None
    ended = verdict == "DROPPED"
    late = 0 if first is None else max(0, now_ms - (first.ack_ms or first.trigger_ms))
    return PublicationLag(
        **known,
        verdict=verdict,
        why=why,
        newest=None if missing.newest is None else missing.newest.name,
        as_of=None if missing.had is None else iso_or_none(missing.had.logical_time_ms),
        records=0 if ended else None if entries is None else sum(e.records for e in entries),
        late_ms=0 if ended else None if entries is None else late,
        task=task,
    )


def judge(status: PublicationStatus, task: PublicationTask | None) -> tuple[Verdict, str]:
    """The verdict on a publication with its reason; the first rule that applies decides."""
    if status.state == "dropped":
        return "DROPPED", "it was ended, and its target keeps its rows"
    if status.state == "removed":
        return "BLOCKED", "the pipeline no longer declares it; it pins its checkpoint until you drop it"
    if status.state != "current" and task is not None and (found := _of_task(status, task)) is not None:
        return found
    if status.state == "current":
        return "UP_TO_DATE", "the target has the newest checkpoint"
    if status.state == "begun":
        return "BEHIND", "a step was begun and is not done; the next run finishes it"
    if status.state == "new":
        return "NOT_STARTED", _not_started(status, task)
    return "BEHIND", _behind(status)


def _of_task(status: PublicationStatus, task: PublicationTask) -> tuple[Verdict, str] | None:
    failure = task.failure
    if failure is not None and failure.is_final and failure.error == TargetChangedError.__name__:
        return "BLOCKED", "others have changed the target; the error of its task names the next step"
    if task.state in FAILED:
        retries = task.state == "up_for_retry"
        return "FAILING", "the newest try failed; " + ("Airflow tries again" if retries else "the next run tries again")
    if task.is_paused and status.state != "new":
        return "BLOCKED", f"DAG {task.dag_id} is paused"
    if task.state in RUNNING:
        return "PUBLISHING", "its task is under way"
    return None


def _not_started(status: PublicationStatus, task: PublicationTask | None) -> str:
    if status.behind == 0:
        return "there is no checkpoint to publish yet"
    if task is None:
        return "nothing was published yet, and no DAG that you may read publishes it"
    paused = f"DAG {task.dag_id} is paused; once it is unpaused, its next run starts it"
    return f"nothing was published yet; {paused if task.is_paused else f'the next run of DAG {task.dag_id} starts it'}"


def _behind(status: PublicationStatus) -> str:
    if status.behind == 0:
        return "an erasure is not published yet"
    return (
        "1 checkpoint is not published yet"
        if status.behind == 1
        else (f"{status.behind:,} checkpoints are not published yet")
    )
