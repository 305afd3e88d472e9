"""Deadlines for checkpoints, and whether a pipeline meets its own.

Flink has no such alert: it has a metric with the time of the last completed checkpoint, which you would have to watch.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tidemark.errors import UsageError
from tidemark.model.core.names import checked_name
from tidemark.model.core.savepoint_expiry import span_ms

EVERY = ""
"""Stands for every pipeline without its own deadline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Punctuality:
    """The state of a pipeline against its deadline.

    Attributes:
        now_ms: the current time, in milliseconds since the epoch.
        since_ms: start of the deadline: when the newest checkpoint of the live timeline was sealed, or when a restore
            began that timeline, or before the first checkpoint, when that was planned; None = never.
        deadline_ms: the longest time without a completed checkpoint; None = no limit.
        stopped: whether a person stopped the pipeline; then nothing is due.
    """

    now_ms: int
    since_ms: int | None
    deadline_ms: int | None
    stopped: bool

    @property
    def age_ms(self) -> int | None:
        """Time since then; never negative, even if clocks differ."""
        return None if self.since_ms is None else max(0, self.now_ms - self.since_ms)

    @property
    def is_late(self) -> bool:
        """Whether a checkpoint is overdue."""
        if self.stopped or self.deadline_ms is None or self.age_ms is None:
            return False
        return self.age_ms > self.deadline_ms

    @property
    def late_since_ms(self) -> int | None:
        """When the checkpoint became late: the same for every caller, so it identifies an alert."""
        if not self.is_late or self.since_ms is None or self.deadline_ms is None:
            return None
        return self.since_ms + self.deadline_ms


def parse_deadlines(text: str) -> Mapping[str, int]:
    """Parses deadlines to milliseconds per pipeline, with `EVERY` for all others; empty if none is set.

    Args:
        text: a span (`26h`), spans of pipelines (`flights=26h,payments=30m`), or both (`2d,payments=30m`).

    Raises:
        UsageError: a span is invalid or 0, or a pipeline occurs twice.
        NameRefusedError: a name is not valid for a pipeline.
    """
    found: dict[str, int] = {}
    for part in (part.strip() for part in text.split(",") if part.strip()):
        name, equals, span = part.rpartition("=")
        pipeline = checked_name("pipeline", name.strip()) if equals else EVERY
        wanted = span_ms(span.strip())
        if not wanted or pipeline in found:
            raise UsageError(
                f"not a deadline: {part!r}", next="write 26h, or flights=26h,payments=30m, each pipeline once."
            )
        found[pipeline] = wanted
    return found
