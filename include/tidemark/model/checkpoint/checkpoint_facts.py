"""The facts of a checkpoint: short, and the same in the command line, asset events and lineage."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from tidemark.errors import UsageError
from tidemark.model.checkpoint.manifest import Ack, Checkpoint
from tidemark.model.checkpoint.plan import Gap
from tidemark.model.checkpoint.segments import OperatorState, Segment, StateHandle
from tidemark.model.core.names import checked_name
from tidemark.model.core.offsets import OffsetRange
from tidemark.model.core.savepoint_expiry import span_ms


def checkpoint_facts(checkpoint: Checkpoint) -> dict[str, object]:
    """Returns the facts of a completed checkpoint as JSON values.

    Returns:
        id, timeline, sequence, parent, interval, `start` and `end` of each partition, records, dead letters and touched
        keys per operator, records emitted per process, the table of each sink, bytes of the run and of the whole state,
        gate, milliseconds per step, the number of offsets beyond the ranges at planning, the watermark in total and per
        partition, and the versions of the tables that broadcast states copy.
    """
    plan, sealed = checkpoint.plan, checkpoint.sealed
    interval = plan.interval
    return {
        "id": plan.name,
        "pipeline": plan.pipeline,
        "timeline": plan.slot.timeline,
        "sequence": plan.slot.sequence,
        "attempt": sealed.attempt,
        "parent": None if plan.parent is None else f"chk-{plan.parent}",
        "interval_start": None if interval is None else iso(interval.start_ms),
        "interval_end": None if interval is None else iso(interval.end_ms),
        "logical_time": iso(plan.logical_time_ms),
        "covered_until": None if checkpoint.covered_until_ms is None else iso(checkpoint.covered_until_ms),
        "ranges": {str(tp): range_facts(r) for tp, r in plan.ranges.items()},
        "pending_records": sum(plan.pending.values()),
        "watermark": None if sealed.facts.watermark_ms is None else iso(sealed.facts.watermark_ms),
        "watermarks": {str(tp): iso(ms) for tp, ms in sorted(sealed.facts.watermarks.items())},
        "broadcast_versions": dict(plan.broadcast_versions),
        "records": sealed.facts.records,
        "dead_letters": {a.uid: a.dead_lettered for a in sealed.acks},
        "keys": {a.uid: a.keys for a in sealed.acks},
        "emitted": {a.uid: a.emitted for a in sealed.acks if plan.schemas[a.uid].kind == "process"},
        "sinks": {table.name: [_segment(s) for s in table.handle] for table in checkpoint.sinks.values()},
        "run_bytes": sealed.run_bytes,
        "full_bytes": sealed.full_bytes,
        "gate": _gate(checkpoint),
        "left_behind": {uid: [_segment(s) for s in handle] for uid, handle in plan.left_behind.items()},
        "accepted_losses": [loss_facts(gap) for gap in plan.losses],
        "timings_ms": dict(sealed.timings_ms),
        "seconds": round(sum(sealed.timings_ms.values()) / 1000, 3),
    }


def range_facts(offsets: OffsetRange) -> dict[str, object]:
    """A range of offsets; `end` is exclusive."""
    return {"start": offsets.start, "end": offsets.end}


def loss_facts(gap: Gap) -> dict[str, object]:
    """Offsets that were not read, and the reason."""
    return {"partition": str(gap.partition), **range_facts(gap.lost), "why": gap.why}


def _segment(s: Segment) -> dict[str, object]:
    return {"path": s.path, "version": s.version, "after": s.after, "through": s.through}


def as_text(told: Mapping[str, object]) -> str | None:
    """Returns a range, a loss or a segment of the facts as text for people; None for anything else."""
    match told:
        case {"partition": partition, "start": start, "end": end, "why": why, **rest} if not rest:
            return f"{partition} [{start}, {end}): {why}"
        case {"start": start, "end": end, **rest} if not rest:
            return f"[{start}, {end})"
        case {"path": path, "version": version, "after": after, "through": through, **rest} if not rest:
            return f"{path} version {version} ({after}, {through}]"
    return None


def _gate(checkpoint: Checkpoint) -> str:
    expectations = checkpoint.sealed.verdict.expectations
    held = sum(e.success for e in expectations)
    return f"{held} of {len(expectations)} held" if expectations else "none"


def iso(ms: int) -> str:
    """Returns milliseconds since the epoch as ISO 8601 in UTC."""
    return datetime.fromtimestamp(ms / 1000, tz=UTC).isoformat().replace("+00:00", "Z")


Facts = Mapping[str, object]


def changed_assets(made: Checkpoint) -> dict[str, Facts]:
    """Returns the assets that a checkpoint changed, by name, each with its own facts as JSON values.

    State changes if a key or a list was touched, dead letters if a record was rejected, a sink if it got rows. An
    adopted compaction changes files, not what readers see, so it is not a change.
    """
    plan = made.plan
    shared: Facts = {
        "id": plan.name,
        "pipeline": plan.pipeline,
        "timeline": plan.slot.timeline,
        "logical_time": iso(plan.logical_time_ms),
    }
    return {
        f"{plan.pipeline}/{name}": {**shared, **facts} for ack in made.sealed.acks for name, facts in _of(made, ack)
    }


def _of(made: Checkpoint, ack: Ack) -> Iterator[tuple[str, Facts]]:
    plan, uid = made.plan, ack.uid
    if ack.keys or ack.operator_state != plan.operator_states.get(uid, OperatorState()):
        state = {"uid": uid, "read": ack.read, "applied": ack.applied, "keys": ack.keys, "run_bytes": ack.run_bytes}
        yield f"state/{uid}", {**state, **_table(ack.handle)}
    if ack.dead_lettered:
        letters = {"uid": uid, "read": ack.read, "dead_lettered": ack.dead_lettered}
        yield f"dead_letters/{uid}", {**letters, **_table(ack.dead_letters)}
    sink = made.sinks.get(uid)
    if sink is not None and ack.sink != plan.sinks[uid].handle:
        yield f"sinks/{sink.name}", {"uid": uid, "emitted": ack.emitted, **_table(ack.sink)}


def _table(handle: StateHandle) -> Facts:
    """Returns the rows and bytes in total, and the version of each table for readers."""
    return {"rows": handle.rows, "bytes": handle.bytes, "versions": {s.path: s.version for s in handle}}


# Whether checkpoints complete often enough: deadlines as people set them, and the state of a pipeline against them.
#
# Flink has no such alert: it reports the time of the last completed checkpoint as a metric, which you have to monitor.
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
