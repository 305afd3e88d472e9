"""How far a run has come that makes several checkpoints."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """The progress of a run after one of its checkpoints, in offsets of all partitions.

    Attributes:
        run: who runs: a DAG run as `<dag_id>/<run_id>`, or a process of the command line.
        checkpoint: the newest checkpoint, such as `chk-17`.
        done: offsets that the run's checkpoints have read so far.
        total: offsets that the run reads until its end.
        share: `done / total`; 1 if there is nothing to read.
        per_second: offsets per second since the run began.
        seconds_left: expected time until the end; None if nothing was read so far.
    """

    run: str
    checkpoint: str
    done: int
    total: int
    share: float
    per_second: float
    seconds_left: float | None

    def __str__(self) -> str:
        """One line for people.

        >>> print(RunFacts(run="r", checkpoint="chk-3", done=6_000_000, total=20_000_000, share=0.3, per_second=8e4,
        ...     seconds_left=175.0))
        chk-3: 6,000,000 of 20,000,000 offsets (30 %), 80,000 per second, about 0:02:55 left
        """
        left = "" if self.seconds_left is None else f", about {timedelta(seconds=round(self.seconds_left))} left"
        percent = 100 * self.done // self.total if self.total else 100
        share = f"{self.done:,} of {self.total:,} offsets ({percent} %)"
        return f"{self.checkpoint}: {share}, {self.per_second:,.0f} per second{left}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionBacklog:
    """How far a partition was read.

    Attributes:
        partition: topic and partition.
        position: the offset at which the next checkpoint begins.
        lag: offsets that the log held beyond it when the newest checkpoint was planned.
        run_start, run_end: offsets between which the run reads; null if no run of several checkpoints continues, or it
            does not read the partition.
    """

    partition: str
    position: int
    lag: int
    run_start: int | None
    run_end: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogFacts:
    """What the live timeline has not read yet, as of its newest checkpoint.

    Attributes:
        checkpoint: its name; null if there is none.
        planned_at: when it was planned, so when the lag was measured.
        lag: offsets that the log held beyond its ranges then, over all partitions.
        run: the run that continues after it; null if it ended its run, or was its only checkpoint.
        ends_at: when the run is expected to end, at its mean rate so far.
        checkpoints: how many the run has made.
        checkpoints_left: how many more it needs, if they read as many offsets as those so far.
        bytes_left: bytes of keys and values that it has still to read, by the mean of those so far.
        reduced_to: how many offsets a checkpoint may read, if earlier ones were too large; 0 = the whole bound.
        partitions: every partition of its plan.
    """

    checkpoint: str | None
    planned_at: str | None
    lag: int
    run: RunFacts | None
    ends_at: str | None
    checkpoints: int
    checkpoints_left: int | None
    bytes_left: int | None
    reduced_to: int
    partitions: Sequence[PartitionBacklog]
