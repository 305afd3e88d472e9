"""Completed checkpoints as values."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tidemark.answers.checkpoint_facts import checkpoint_facts
from tidemark.context import Context
from tidemark.model.checkpoint.codec import body_of
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.operations import reads, savepoints


@dataclass(frozen=True, slots=True)
class CompletedCheckpoint:
    """The facts of a completed checkpoint; its state is read by `PipelineHistory.state`.

    Attributes:
        manifest: all of it, as `tidemark.model` has it. Its fields may change between releases.
        savepoints: names of the savepoints that pin it.
        released: whether retention has released it: then its facts remain, but its state cannot be read.

    >>> chk = w["flights"].checkpoint("chk-2")
    >>> chk.id, chk.name, chk.timeline, chk.parent, chk.status
    (2, 'chk-2', 't1', 'chk-1', 'completed')
    >>> print(chk.logical_time)
    2013-03-01 00:00:00+00:00
    >>> chk.records, chk.dead_letters, chk.keys
    (3, 0, {'aircraft': 2, 'routes': 3, 'rotations': 1})
    >>> chk.savepoints
    ('winter',)
    """

    manifest: Checkpoint
    savepoints: tuple[str, ...] = ()
    released: bool = False

    @property
    def id(self) -> int:
        """A number that ascends over all timelines."""
        return self.manifest.id

    @property
    def name(self) -> str:
        """`chk-17`."""
        return self.manifest.plan.name

    @property
    def status(self) -> str:
        """`completed`, or `released` if retention has released its state."""
        return "released" if self.released else "completed"

    @property
    def timeline(self) -> str:
        """The timeline that it is on, as in `t1`."""
        return self.manifest.plan.slot.timeline

    @property
    def parent(self) -> str | None:
        """The checkpoint that it continues, as in `chk-16`; None for the first one."""
        parent = self.manifest.plan.parent
        return None if parent is None else f"chk-{parent}"

    @property
    def logical_time(self) -> datetime:
        """Its "now", in UTC: expires state on the clock of logical time, and is compared with a time in `at=`."""
        return _utc(self.manifest.plan.logical_time_ms)

    @property
    def interval(self) -> tuple[datetime, datetime] | None:
        """Start (included) and end (excluded) of the data interval that it was made for, in UTC; None without one."""
        found = self.manifest.interval
        return None if found is None else (_utc(found.start_ms), _utc(found.end_ms))

    @property
    def watermark(self) -> datetime | None:
        """The greatest event time that was read so far, in UTC; None if the source has no event time."""
        ms = self.manifest.sealed.facts.watermark_ms
        return None if ms is None else _utc(ms)

    @property
    def ranges(self) -> dict[str, tuple[int, int]]:
        """Offsets that it read, per partition as in `flights-0`: start (included) and end (excluded)."""
        return {str(tp): (r.start, r.end) for tp, r in self.manifest.plan.ranges.items()}

    @property
    def records(self) -> int:
        """Records that it read, dead letters included."""
        return self.manifest.sealed.facts.records

    @property
    def dead_letters(self) -> int:
        """Records that at least one operator could not apply; an upper bound in manifests of 0.1."""
        return self.manifest.sealed.dead_lettered

    @property
    def keys(self) -> dict[str, int]:
        """Keys that it touched, per operator."""
        return {ack.uid: ack.keys for ack in self.manifest.sealed.acks}

    @property
    def run_bytes(self) -> int:
        """Bytes that it wrote: the increment."""
        return self.manifest.sealed.run_bytes

    @property
    def full_bytes(self) -> int:
        """Bytes of all state that it names."""
        return self.manifest.sealed.full_bytes

    def to_dict(self) -> dict[str, Any]:
        """All facts, as JSON values: a row of `tidemark checkpoint list --json`.

        >>> sorted(w["flights"].latest().to_dict())[:6]
        ['accepted_losses', 'attempt', 'broadcast_versions', 'covered_until', 'dead_letters', 'drains']
        """
        return {
            **body_of(checkpoint_facts(self.manifest)),
            "savepoints": list(self.savepoints),
            "released": self.released,
        }

    def __repr__(self) -> str:
        return f"<{self.name} on {self.timeline}: {self.records} records, {self.status}>"


def list_completed(context: Context, pipeline: str, limit: int | None) -> list[CompletedCheckpoint]:
    """The checkpoints of the live timeline, newest first."""
    found, pins = reads.list_checkpoints(context, pipeline, limit=limit), _pins(context, pipeline)
    gone = reads.list_released(context, pipeline)
    return [CompletedCheckpoint(c, pins.get(c.id, ()), c.plan.name in gone) for c in found]


def get_completed(context: Context, pipeline: str, number: int) -> CompletedCheckpoint:
    """A checkpoint of any timeline.

    Raises:
        NotFoundError: there is none.
    """
    found, gone = reads.get_recorded_checkpoint(context, pipeline, number)
    return CompletedCheckpoint(found, _pins(context, pipeline).get(found.id, ()), gone is not None)


def _pins(context: Context, pipeline: str) -> Mapping[int, tuple[str, ...]]:
    return savepoints.open_savepoints(context, pipeline).pins()


def _utc(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, tz=UTC)
