"""The ports for monitoring a pipeline. If they are down, they must never fail or delay the data path.

Callers limit the time of each call and survive every error (`tidemark.telemetry.bounded`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from tidemark.model.checkpoint.failure import FailureReason
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.plan import CheckpointPlan


class Metrics(Protocol):
    """A receiver of gauges. Any process calls it after a change of a pipeline, with all gauges each time."""

    def tell(self, pipeline: str, gauges: Mapping[str, float]) -> None:
        """Sends the gauges of a pipeline; a later call replaces them.

        Args:
            pipeline: its name; part of each gauge's name, or a tag, or both.
            gauges: values by name, as in `tidemark.model.checkpoint.metrics.METRICS`.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageEvent:
    """An attempt starts, or it fails, or its checkpoint is completed.

    Attributes:
        plan: the plan.
        attempt: number of the attempt.
        at_ms: when this is announced, in milliseconds since the epoch.
        failure: why it has failed.
        completed: the checkpoint, once it is published.
    """

    plan: CheckpointPlan
    attempt: int
    at_ms: int
    failure: FailureReason | None = None
    completed: Checkpoint | None = None

    @classmethod
    def of(cls, completed: Checkpoint, at_ms: int) -> "LineageEvent":
        """Returns the event of a completed checkpoint."""
        return cls(plan=completed.plan, attempt=completed.sealed.attempt, at_ms=at_ms, completed=completed)


class LineageSink(Protocol):
    """A receiver of events about attempts and checkpoints. It may get an event twice and drops duplicates."""

    def announce(self, event: LineageEvent) -> None:
        """Sends one event.

        Raises:
            Exception: the receiver is down, slow, or refuses it.
        """
