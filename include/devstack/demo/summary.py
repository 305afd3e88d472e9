"""The demo's results so far, read from the store: every timeline that was live, and the table of checkpoints."""

from collections.abc import Set
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

from tidemark.cli.output import human_bytes
from tidemark.context import Context
from tidemark.model.checkpoint.manifest import Checkpoint

NEW_YORK = ZoneInfo("America/New_York")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A timeline that is or was live.

    Attributes:
        timeline: the timeline's name.
        checkpoints: its checkpoints and its ancestors', oldest first, if they were made for a month.
    """

    timeline: str
    checkpoints: tuple[Checkpoint, ...]

    @property
    def own(self) -> tuple[Checkpoint, ...]:
        """The checkpoints that were completed on this timeline."""
        return tuple(found for found in self.checkpoints if found.plan.slot.timeline == self.timeline)


def lines_of(context: Context, pipeline: str) -> list[Line]:
    """Returns the timelines that were live, in order; the live one is the last."""
    timelines = context.coordinator(pipeline).timelines
    names = [*(closing.timeline for closing in timelines.closings()), timelines.live()]
    found = [(name, reversed(list(timelines.chain(name)))) for name in names]
    return [Line(timeline=name, checkpoints=tuple(c for c in chain if c.interval)) for name, chain in found]


def table_of(lines: list[Line], released: Set[str]) -> list[dict[str, object]]:
    """Returns the rows of the table: every checkpoint of every line once, by id.

    Args:
        lines: the result of `lines_of`.
        released: names of checkpoints that retention has released.
    """
    found = {checkpoint.id: checkpoint for line in lines for checkpoint in line.checkpoints}
    return [_row(found[number], released) for number in sorted(found)]


def _row(checkpoint: Checkpoint, released: Set[str]) -> dict[str, object]:
    interval, sealed = checkpoint.interval, checkpoint.sealed
    span = "-"
    if interval is not None:
        start, end = (datetime.fromtimestamp(ms / 1000, NEW_YORK) for ms in (interval.start_ms, interval.end_ms))
        span = f"{start:%Y-%m-%d} … {end:%Y-%m-%d}"
    return {
        "id": checkpoint.plan.name,
        "interval": span,
        "records": sealed.facts.records,
        "dead letters": f"{'≤ ' if sealed.dead_lettered_at_most else ''}{sealed.dead_lettered}",
        "run": human_bytes(sealed.run_bytes),
        "full": human_bytes(sealed.full_bytes),
        "seconds": f"{sum(sealed.timings_ms.values()) / 1000:.1f}",
        "timeline": checkpoint.plan.slot.timeline,
        "state": "released" if checkpoint.plan.name in released else "kept",
    }
