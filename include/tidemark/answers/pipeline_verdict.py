"""The verdict on a pipeline, the schedule of its DAG, and the checkpoints that an overview is about."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleFacts:
    """When the DAG of a pipeline runs.

    `kind` is `time`, `assets`, `manual` or `other`. `text` describes it in the time zone `zone`, which is null if the
    schedule has none. `next_run` is null if Airflow plans none. No scheduled run has a data interval that begins after
    `end`.
    """

    kind: str
    text: str
    zone: str | None
    is_paused: bool
    next_run: str | None
    end: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineVerdict:
    """How a pipeline is doing: `state` is one word, `reason` says why. Times and spans are in milliseconds.

    It is about the live timeline. `age` is that of `checkpoint`, the newest completed one; `every` the span between two
    scheduled runs, null if it varies; `late_at` the time at which the pipeline becomes late, null if it never does, by
    the setting or by the schedule (`late_by`). `rejected_share` is the part of the records that at least one operator
    could not apply, over the last `measured` checkpoints that read any.
    """

    state: str
    reason: str
    checkpoint: int | None
    age: int | None
    every: int | None
    late_at: int | None
    late_by: str | None
    lag: int | None
    rejected_share: float | None
    measured: int
    next_run: str | None
    now: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeFacts:
    """The checkpoints that an answer is about: those of `timeline` and of its ancestors; of all timelines if null."""

    timeline: str | None
    is_live: bool
