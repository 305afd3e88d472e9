"""Measures the health of a pipeline on its live timeline, for its verdict and for the tiles of the overview."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile

from tidemark.answers.checkpoint_overview import PipelineHealth, StopReason
from tidemark.answers.pipeline_verdict import PipelineVerdict, ScheduleFacts
from tidemark.context import Context
from tidemark.coordinator.records.timeline_tree import Branch, branch
from tidemark.coordinator.records.timelines import Stops
from tidemark.errors import CorruptObjectError, TidemarkError
from tidemark.glance import glance_at
from tidemark.model.checkpoint.metrics import DueRun
from tidemark.operations import observability
from tidemark.operations.observability import ExpectedRuns
from tidemark.web import history_cache
from tidemark.web.history import CheckpointStatus, History, HistoryEntry, quantiles
from tidemark.web.history_lines import counts_as_failure
from tidemark.web.verdict import VerdictInputs, assess

RECENT = 10
"""Checkpoints over which rejected records are counted."""
USUAL = 50
"""Checkpoints over which the usual duration is measured; it is the 90th percentile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSchedule:
    """The schedule of a pipeline's DAG.

    Attributes:
        facts: for the answer.
        due_after: finds the first scheduled run after a time, in milliseconds since the epoch; None if there is none.
    """

    facts: ScheduleFacts
    due_after: Callable[[int], DueRun | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveLine:
    """The live timeline as far as the pages have read it.

    Attributes:
        pipeline: its name.
        live: the timeline; None if it cannot be read.
        history: the history.
        damage: why the timelines cannot be read; empty if they can.
    """

    pipeline: str
    live: Branch | None
    history: History
    damage: str = ""

    def list_completed(self) -> Iterator[HistoryEntry]:
        """The completed checkpoints of the timeline and of its ancestors, newest first."""
        if self.live is None:
            return
        begun = None if self.live.genesis is None else self.live.genesis.parent
        number = begun if self.live.newest is None else self.live.newest.id
        while number is not None and (found := self.history.completed_entry(number)) is not None:
            yield found
            number = found.parent

    def list_later(self) -> list[HistoryEntry]:
        """The checkpoints of the timeline after the newest completed one, newest first."""
        newest = next(self.list_completed(), None)
        since = 0 if newest is None else newest.id
        later = takewhile(lambda e: e.id > since, self.history.entries)
        return [e for e in later if self.live is not None and e.slot.timeline == self.live.timeline]


def measure_health(
    context: Context, line: LiveLine, schedule: RunSchedule | None
) -> tuple[PipelineHealth, PipelineVerdict]:
    """Measures the live timeline now.

    Args:
        context: of this answer.
        line: the live timeline.
        schedule: of the pipeline's DAG; None if Airflow knows none.
    """
    newest, later = next(line.list_completed(), None), line.list_later()
    failures = [e for e in later if e.status is CheckpointStatus.FAILED and counts_as_failure(e)]
    at = None if line.live is None else observability.measure_deadline(context, line.pipeline, line.live)
    stop = Stops(context.coordinator(line.pipeline).objects).current()
    now = context.clock.now_ms()
    health = PipelineHealth(
        live=None if line.live is None else line.live.timeline,
        newest=None if newest is None else newest.id,
        age=None if newest is None else max(0, now - (newest.ack_ms or newest.trigger_ms)),
        deadline=context.settings.deadline_ms(line.pipeline),
        late=at is not None and at.is_late,
        lag=None if newest is None else sum(newest.pending.values()),
        failures_in_row=len(failures),
        stopped=None if stop is None else StopReason(why=stop.why, savepoint=stop.savepoint, at=stop.at_ms),
        now=now,
    )
    since = None if at is None else at.since_ms
    recent = list(islice((e for e in line.list_completed() if e.records), RECENT))
    found = VerdictInputs(
        now_ms=now,
        since_ms=since,
        checkpoint=health.newest,
        age_ms=health.age,
        is_open=any(e.status is CheckpointStatus.IN_PROGRESS for e in later),
        failures=len(failures),
        failure=failures[0].failure[0] if failures else "",
        damaged=sum(e.status is CheckpointStatus.DAMAGED for e in line.history.entries),
        damage=line.damage,
        stopped_ms=None if stop is None else stop.at_ms,
        stopped_why="" if stop is None else stop.why,
        deadline_ms=health.deadline,
        schedule=None if schedule is None else schedule.facts,
        due=None if schedule is None or since is None else schedule.due_after(since),
        usual_ms=_usual_duration(islice(line.list_completed(), USUAL)),
        lag=health.lag,
        records=sum(e.records for e in recent),
        rejected=sum(e.dead_letters for e in recent),
        measured=len(recent),
    )
    return health, assess(found)


def get_verdict(context: Context, name: str, schedule: RunSchedule | None) -> PipelineVerdict:
    """The verdict on a pipeline, for lists of pipelines; it reads no other timeline than the live one.

    Errors are verdicts, too, so that one pipeline hides no other.

    Args:
        context: of this process.
        name: the pipeline.
        schedule: of its DAG; None if Airflow knows none.
    """
    glance = glance_at(context)
    try:
        return measure_health(glance, _read_line(glance, name), schedule)[1]
    except CorruptObjectError as error:
        return assess(VerdictInputs(now_ms=context.clock.now_ms(), damage=error.what))
    except TidemarkError as error:
        return assess(VerdictInputs(now_ms=context.clock.now_ms(), unreadable=error.what))


def _read_line(glance: Context, name: str) -> LiveLine:
    _, remembered = history_cache.read_history(glance, name)
    timelines = glance.coordinator(name).timelines
    live = timelines.live()
    return LiveLine(pipeline=name, live=branch(timelines, live, live), history=remembered.history)


def _usual_duration(completed: Iterator[HistoryEntry]) -> int:
    found: Sequence[HistoryEntry] = [e for e in completed if not e.is_empty]
    return round(quantiles(e.duration_ms for e in found).p90)


def expect_runs(context: Context, name: str, due_after: Callable[[int], DueRun | None]) -> ExpectedRuns:
    """Returns the runs by which a pipeline without a deadline is measured, as in its verdict.

    Args:
        context: of this process.
        name: the pipeline.
        due_after: finds the first scheduled run after a time.

    Raises:
        NotFoundError: no such pipeline.
        StoreError, CorruptObjectError: the store could not be read.
    """
    completed = _read_line(glance_at(context), name).list_completed()
    return ExpectedRuns(due_after=due_after, usual_ms=_usual_duration(islice(completed, USUAL)))
