"""The metrics of a pipeline as gauges: names, units, meanings and values.

Every gauge is computed from the warehouse. So any process reports the same value at any time, a lost metric is reported
again, and a restart does not reset counts, as it does in Flink. A gauge has Flink's name if it has Flink's meaning.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tidemark.model.checkpoint.manifest import Checkpoint

NONE = -1
"""The value of something that does not exist yet, as in Flink."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointCounts:
    """Counts over all timelines and all history.

    Attributes:
        completed: completed checkpoints.
        failed: aborted plans.
        in_progress: plans that are open, or sealed but not yet published.
        restarts: attempts that took over a plan from an earlier attempt.
    """

    completed: int
    failed: int
    in_progress: int
    restarts: int

    @property
    def total(self) -> int:
        """The sum of all three."""
        return self.completed + self.failed + self.in_progress


@dataclass(frozen=True, slots=True, kw_only=True)
class DueRun:
    """The first scheduled run after the newest checkpoint.

    Attributes:
        at_ms: when it starts.
        following_ms: when the run after it starts.
        every_ms: the span between two runs; None if it varies, as from month to month.
    """

    at_ms: int
    following_ms: int
    every_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlineStatus:
    """The state of a pipeline against its deadline.

    Attributes:
        now_ms: the current time, in milliseconds since the epoch.
        since_ms: start of the deadline: when the newest checkpoint of the live timeline was sealed, or when a restore
            began that timeline, or before the first checkpoint, when that was planned; None = never.
        deadline_ms: the longest time without a completed checkpoint; None = not set.
        stopped: whether a person stopped the pipeline; then nothing is due.
        due: the first scheduled run after `since_ms`; None = there is none, or the DAG is paused.
        usual_ms: the usual duration of a checkpoint.
    """

    now_ms: int
    since_ms: int | None
    deadline_ms: int | None
    stopped: bool
    due: DueRun | None = None
    usual_ms: int = 0

    @property
    def age_ms(self) -> int | None:
        """Time since then; never negative, even if clocks differ."""
        return None if self.since_ms is None else max(0, self.now_ms - self.since_ms)

    @property
    def late_at_ms(self) -> int | None:
        """When the pipeline becomes late; None = never.

        By the setting, if there is one, also while the DAG is paused. Otherwise by the schedule: when the run after the
        due one starts, plus the usual duration of a checkpoint. A run has this long to complete one.
        """
        if self.since_ms is None or self.stopped:
            return None
        if self.deadline_ms is not None:
            return self.since_ms + self.deadline_ms
        return None if self.due is None else self.due.following_ms + self.usual_ms

    @property
    def is_late(self) -> bool:
        """Whether a checkpoint is overdue."""
        return self.late_at_ms is not None and self.now_ms > self.late_at_ms

    @property
    def late_since_ms(self) -> int | None:
        """When the checkpoint became late: the same for every caller, so it identifies an alert."""
        return self.late_at_ms if self.is_late else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The state of a pipeline at one time.

    Attributes:
        pipeline: name of the pipeline.
        tally: counts.
        newest: the newest checkpoint of the live timeline, or the one that a restore started it from.
        sealed_ms: when that was sealed.
        restored_ms: when the newest restore was made.
        failures_in_row: failures since then that count.
        layers: most live runs, and deepest level, of any operator; `NONE` if their tables cannot be read.
        deadline: age and deadline.
    """

    pipeline: str
    tally: CheckpointCounts
    newest: Checkpoint | None
    sealed_ms: int | None
    restored_ms: int | None
    failures_in_row: int
    layers: tuple[int, int]
    deadline: DeadlineStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One gauge.

    Attributes:
        unit: `ms`, `bytes`, `ms since the epoch`, `id`, or the counted things.
        flink: Flink's meaning of the name; empty for a name of Tidemark's own.
        meaning: its meaning in Tidemark.
        of: computes its value.
    """

    unit: str
    meaning: str
    of: Callable[[Standing], float]
    flink: str = ""


def _newest(of: Callable[[Checkpoint], float]) -> Callable[[Standing], float]:
    return lambda standing: NONE if standing.newest is None else of(standing.newest)


def _tallied(of: Callable[[CheckpointCounts], int], *, flink: str, meaning: str, unit: str = "checkpoints") -> Metric:
    """A count over all history."""
    return Metric(unit=unit, flink=flink, meaning=meaning, of=lambda standing: of(standing.tally))


def _or_none(value: int | None) -> int:
    return NONE if value is None else value


def _least_watermark(found: Checkpoint) -> int:
    marks = [clock.watermark_ms for clock in found.source_clocks.values() if not clock.is_idle]
    return NONE if not marks or None in marks else min(at for at in marks if at is not None)


METRICS: Mapping[str, Metric] = {
    "lastCheckpointDuration": Metric(
        unit="ms",
        flink="the time it took to complete the last checkpoint",
        meaning="from the trigger to the last acknowledgement",
        of=lambda s: NONE if s.newest is None or s.sealed_ms is None else s.sealed_ms - s.newest.plan.planned_at_ms,
    ),
    "lastCheckpointWork": Metric(
        unit="ms",
        meaning="steps of its sealed attempt, added up; without the time that the DAG run waited",
        of=_newest(lambda c: sum(c.sealed.timings_ms.values())),
    ),
    "lastCheckpointSize": Metric(
        unit="bytes",
        flink="the checkpointed size of the last checkpoint: the increment",
        meaning="of the runs that it wrote",
        of=_newest(lambda c: c.sealed.run_bytes),
    ),
    "lastCheckpointFullSize": Metric(
        unit="bytes",
        flink="the full size of the last checkpoint",
        meaning="of all state that it names",
        of=_newest(lambda c: c.sealed.full_bytes),
    ),
    "lastCompletedCheckpointId": Metric(
        unit="id",
        flink="the identifier of the last completed checkpoint",
        meaning="of the live timeline",
        of=_newest(lambda c: c.id),
    ),
    "lastCheckpointCompletedTimestamp": Metric(
        unit="ms since the epoch",
        flink="when the last checkpoint was completed",
        meaning="when it was sealed",
        of=lambda s: _or_none(s.sealed_ms),
    ),
    "lastCheckpointRestoreTimestamp": Metric(
        unit="ms since the epoch",
        flink="when the last checkpoint was restored at the coordinator",
        meaning="when the newest restore made its timeline",
        of=lambda s: _or_none(s.restored_ms),
    ),
    "numberOfInProgressCheckpoints": _tallied(
        lambda t: t.in_progress, flink="checkpoints in progress", meaning="planned, neither completed nor aborted"
    ),
    "numberOfCompletedCheckpoints": _tallied(
        lambda t: t.completed,
        flink="successfully completed checkpoints, since the job began",
        meaning="on all timelines, since the pipeline began",
    ),
    "numberOfFailedCheckpoints": _tallied(
        lambda t: t.failed,
        flink="failed checkpoints, since the job began",
        meaning="plans that were aborted, on all timelines",
    ),
    "totalNumberOfCheckpoints": _tallied(
        lambda t: t.total, flink="in progress, completed and failed", meaning="the same"
    ),
    "fileMerging.physicalFileCount": Metric(
        unit="files",
        flink="files that the merged state files lie in",
        meaning="files of all state that the newest checkpoint names",
        of=_newest(lambda c: sum(s.files for a in c.sealed.acks for s in a.handle)),
    ),
    "fileMerging.physicalFileSize": Metric(
        unit="bytes",
        flink="their size",
        meaning="the same as `lastCheckpointFullSize`",
        of=_newest(lambda c: c.sealed.full_bytes),
    ),
    "numRestarts": _tallied(
        lambda t: t.restarts,
        flink="restarts of the job since it was submitted",
        meaning="attempts that took over a plan from an earlier one",
        unit="attempts",
    ),
    "pendingRecords": Metric(
        unit="offsets",
        flink="of the Kafka source: records that are not fetched yet",
        meaning="lag: beyond the ranges of the newest checkpoint when it was planned",
        of=_newest(lambda c: sum(c.plan.pending.values())),
    ),
    "currentInputWatermark": Metric(
        unit="ms since the epoch",
        flink="the last watermark that a task has received; of several inputs the smallest",
        meaning="the smallest of the sources that declare one and are not idle; -1 = none",
        of=_newest(lambda c: _least_watermark(c)),
    ),
    "lastCheckpointRecords": Metric(
        unit="records", meaning="read from Kafka by the newest checkpoint", of=_newest(lambda c: c.sealed.facts.records)
    ),
    "lastCheckpointDeadLetters": Metric(
        unit="records",
        meaning="that at least one operator could not apply, each counted once",
        of=_newest(lambda c: c.sealed.dead_lettered),
    ),
    "lastCheckpointFiltered": Metric(
        unit="records",
        meaning="that the condition of an operator leaves out, added up over the operators",
        of=_newest(lambda c: sum(a.filtered for a in c.sealed.acks)),
    ),
    "deadLetterRows": Metric(
        unit="rows",
        meaning="of the dead-letter tables, as the newest checkpoint names them; expired ones until a compaction",
        of=_newest(lambda c: sum(a.dead_letters.rows for a in c.sealed.acks)),
    ),
    "liveRuns": Metric(
        unit="runs",
        meaning="of the operator that has most: what compaction has not merged so far",
        of=lambda s: s.layers[0],
    ),
    "deepestLevel": Metric(
        unit="level", meaning="of any operator; 0 = nothing was compacted", of=lambda s: s.layers[1]
    ),
    "failuresInRow": Metric(
        unit="checkpoints", meaning="failed since the newest one, if the reason counts", of=lambda s: s.failures_in_row
    ),
    "lastCheckpointAge": Metric(
        unit="ms",
        meaning="since the newest checkpoint was sealed, or a restore began its timeline",
        of=lambda s: _or_none(s.deadline.age_ms),
    ),
    "checkpointDeadline": Metric(
        unit="ms",
        meaning="longest time without a completed checkpoint that is set; -1 = none",
        of=lambda s: _or_none(s.deadline.deadline_ms),
    ),
    "checkpointLate": Metric(
        unit="0 or 1", meaning="whether that is exceeded; 0 while stopped", of=lambda s: int(s.deadline.is_late)
    ),
}
"""Every gauge by name, in the order of reports. `docs/how-to/monitor.md` has the same table."""


def gauges(standing: Standing) -> dict[str, float]:
    """Returns the value of every metric; `NONE` if there is nothing to measure yet."""
    return {name: metric.of(standing) for name, metric in METRICS.items()}
