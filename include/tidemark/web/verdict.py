"""The verdict on a pipeline: healthy, late, failing, stopped, paused or unknown, with the reason in a sentence.

It is one function of values, without a store and a clock, so every case can be tested.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from tidemark.answers.pipeline_verdict import PipelineVerdict, ScheduleFacts
from tidemark.model.checkpoint.metrics import DeadlineStatus, DueRun

SECOND, MINUTE, HOUR, DAY = 1000, 60_000, 3_600_000, 86_400_000


class HealthState(Enum):
    """The word of a verdict."""

    HEALTHY = "HEALTHY"
    LATE = "LATE"
    FAILING = "FAILING"
    STOPPED = "STOPPED"
    PAUSED = "PAUSED"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictInputs:
    """Everything that a verdict depends on; of the live timeline, and times are in milliseconds since the epoch.

    Attributes:
        now_ms: the current time.
        since_ms: when the newest checkpoint was sealed, or a restore began the timeline, or the first plan was made;
            None = never.
        checkpoint: id of the newest completed checkpoint; None = none.
        age_ms: its age.
        is_open: whether a checkpoint is in progress.
        failures: failures since the newest completed checkpoint that count; any failure if none is completed.
        failure: the reason of the newest one, as `ENGINE_ERROR`.
        damaged: number of damaged checkpoints.
        damage: why the timelines or savepoints cannot be read: an object is damaged; empty if they can.
        unreadable: why the store cannot be read; empty if it can.
        stopped_ms: when a person stopped the pipeline; None = it is not stopped.
        stopped_why: the reason given.
        deadline_ms: the longest time without a completed checkpoint, by the settings; None = not set.
        schedule: when the DAG runs; None = Airflow knows no such DAG.
        due: the first scheduled run since then; None if there is none.
        usual_ms: the usual duration of a checkpoint.
        lag: offsets beyond the newest checkpoint when it was planned.
        records, rejected, measured: of the last checkpoints that read any records.
    """

    now_ms: int
    since_ms: int | None = None
    checkpoint: int | None = None
    age_ms: int | None = None
    is_open: bool = False
    failures: int = 0
    failure: str = ""
    damaged: int = 0
    damage: str = ""
    unreadable: str = ""
    stopped_ms: int | None = None
    stopped_why: str = ""
    deadline_ms: int | None = None
    schedule: ScheduleFacts | None = None
    due: DueRun | None = None
    usual_ms: int = 0
    lag: int | None = None
    records: int = 0
    rejected: int = 0
    measured: int = 0

    @property
    def is_paused(self) -> bool:
        """Whether the DAG is paused."""
        return self.schedule is not None and self.schedule.is_paused

    @property
    def late_at_ms(self) -> int | None:
        """When the pipeline becomes late; None = never."""
        return DeadlineStatus(
            now_ms=self.now_ms,
            since_ms=self.since_ms,
            deadline_ms=self.deadline_ms,
            stopped=self.stopped_ms is not None,
            due=None if self.is_paused else self.due,
            usual_ms=self.usual_ms,
        ).late_at_ms


def assess(found: VerdictInputs) -> PipelineVerdict:
    """Returns the verdict: the first of the checks that applies."""
    state, reason = next(filter(None, (check(found) for check in CHECKS)))
    by = None if found.late_at_ms is None else "schedule" if found.deadline_ms is None else "setting"
    return PipelineVerdict(
        state=state.value,
        reason=reason,
        checkpoint=found.checkpoint,
        age=found.age_ms,
        every=None if found.due is None else found.due.every_ms,
        late_at=found.late_at_ms,
        late_by=by,
        lag=found.lag,
        rejected_share=found.rejected / found.records if found.records else None,
        measured=found.measured,
        next_run=None if found.schedule is None or found.is_paused else found.schedule.next_run,
        now=found.now_ms,
    )


Finding = tuple[HealthState, str] | None


def _unreadable(found: VerdictInputs) -> Finding:
    return (HealthState.UNKNOWN, found.unreadable) if found.unreadable else None


def _damaged(found: VerdictInputs) -> Finding:
    if found.damage:
        return HealthState.FAILING, found.damage
    if found.damaged:
        words = "1 checkpoint is" if found.damaged == 1 else f"{found.damaged} checkpoints are"
        return HealthState.FAILING, f"{words} damaged"
    return None


def _stopped(found: VerdictInputs) -> Finding:
    if found.stopped_ms is None:
        return None
    why = f": {found.stopped_why}" if found.stopped_why else ""
    return HealthState.STOPPED, f"stopped {_ago(found.now_ms - found.stopped_ms)}{why}"


def _failing(found: VerdictInputs) -> Finding:
    if not found.failures:
        return None
    times = "1 failure" if found.failures == 1 else f"{found.failures} failures in a row"
    reason = f" ({found.failure})" if found.failure else ""
    return HealthState.FAILING, f"{times}{reason}, {_last(found)}"


def _late(found: VerdictInputs) -> Finding:
    limit = found.late_at_ms
    if limit is None or found.now_ms <= limit:
        return None
    paused = ", and the DAG is paused" if found.is_paused else ""
    if found.deadline_ms is not None:
        return HealthState.LATE, f"{_last(found)}, the deadline is {span_text(found.deadline_ms)}{paused}"
    # For the type checker: without a setting, a limit has a due run.
    assert found.due is not None  # noqa: S101
    due = _whole(found.now_ms - found.due.at_ms)
    return HealthState.LATE, f"{_last(found)}, a run has been due for {due}"


def _unknown(found: VerdictInputs) -> Finding:
    if found.checkpoint is not None:
        return None
    if found.is_open:
        return HealthState.UNKNOWN, "the first checkpoint is in progress"
    return HealthState.UNKNOWN, "no checkpoint yet" + (", and the DAG is paused" if found.is_paused else "")


def _paused(found: VerdictInputs) -> Finding:
    return (HealthState.PAUSED, f"the DAG is paused, {_last(found)}") if found.is_paused else None


def _healthy(found: VerdictInputs) -> Finding:
    return HealthState.HEALTHY, f"{_last(found)}, {_expected(found)}"


CHECKS: tuple[Callable[[VerdictInputs], Finding], ...] = (
    _unreadable,
    _damaged,
    _stopped,
    _failing,
    _late,
    _unknown,
    _paused,
    _healthy,
)
"""In the order of their weight; the last one always applies."""


RUNS = {
    "time": "no further run is scheduled",
    "manual": "runs on demand",
    "assets": "runs when its events arrive",
}
"""When a DAG runs of which no run is due, by the kind of its schedule."""


def _last(found: VerdictInputs) -> str:
    if found.checkpoint is None or found.age_ms is None:
        return "no checkpoint is completed yet"
    return f"last checkpoint {_ago(found.age_ms)}"


def _expected(found: VerdictInputs) -> str:
    if found.deadline_ms is not None:
        return f"expected within {span_text(found.deadline_ms)}"
    if found.due is not None:
        every = found.due.every_ms
        return "on schedule" if every is None else f"expected every {span_text(every)}"
    if found.schedule is None:
        return "Airflow knows no DAG for it"
    return RUNS.get(found.schedule.kind, "on schedule")


def _ago(ms: int) -> str:
    return f"{_whole(ms)} ago"


def _whole(ms: int) -> str:
    """A span without parts that change from one look at a page to the next."""
    return span_text(ms // MINUTE * MINUTE if ms >= MINUTE else max(0, ms) // SECOND * SECOND)


def span_text(ms: int) -> str:
    """Returns a span in its two largest units, as `850 ms`, `2.5 s`, `10 min`, `1 h 5 min` or `3 d 4 h`."""
    if ms <= 0:
        return "0 s"
    if ms < SECOND:
        return f"{ms} ms"
    if ms < MINUTE:
        return f"{ms // 100 / 10:g} s"
    if ms < HOUR:
        return _pair(ms // SECOND, 60, "min", "s")
    if ms < 2 * DAY and ms != DAY:
        return _pair(ms // MINUTE, 60, "h", "min")
    return _pair(ms // HOUR, 24, "d", "h")


def _pair(units: int, size: int, large: str, small: str) -> str:
    whole, rest = divmod(units, size)
    return f"{whole} {large} {rest} {small}" if rest else f"{whole} {large}"
