"""How far a run has come that makes several checkpoints."""

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
