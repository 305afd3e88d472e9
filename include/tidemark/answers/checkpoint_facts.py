"""The facts of a completed checkpoint, as the command line, asset events and lineage report them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from tidemark.model.checkpoint.manifest import Ack, Checkpoint
from tidemark.model.checkpoint.plan import Gap
from tidemark.model.checkpoint.segments import OperatorState, Segment, StateHandle
from tidemark.model.core.offsets import OffsetRange


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetSpan:
    """Offsets of a partition; `end` is the first one that is not included."""

    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LossFacts:
    """Offsets that were not read, and why."""

    partition: str
    start: int
    end: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentVersion:
    """Rows of the checkpoints in `(after, through]`, in one version of a table."""

    path: str
    version: int
    after: int
    through: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceWatermark:
    """The watermark of a source that declares one.

    Attributes:
        watermark: no record before it is expected any more; None = not known yet.
        idle: whether none of its partitions has a say.
        delay: in milliseconds, as the plan had it; None if that read nothing and moved no clock.
    """

    watermark: str | None
    idle: bool
    delay: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFacts:
    """A completed checkpoint.

    Attributes:
        id: as in `chk-17`; `parent` likewise.
        pending_records: offsets that the log held beyond the ranges when the checkpoint was planned.
        watermark: greatest event time over all partitions, by which state expires; `watermarks` has one for each.
        source_watermarks: of each source that has one, by name.
        frontiers: of each operator with windows or timers: those up to it are closed, or have fired.
        drains: whether it has closed all windows and fired all timers, for `tidemark stop --drain`.
        broadcast_versions: versions of the tables that broadcast states copy.
        dead_letters, filtered, keys: per operator.
        emitted: records, per process.
        sinks: the table of each sink.
        run_bytes: of the runs that it wrote; `full_bytes` counts the whole state.
        gate: how many expectations held.
        left_behind: state of operators that are not declared any more.
        timings_ms: per step; `seconds` is their sum.
    """

    id: str
    pipeline: str
    timeline: str
    sequence: int
    attempt: int
    parent: str | None
    interval_start: str | None
    interval_end: str | None
    logical_time: str
    covered_until: str | None
    ranges: Mapping[str, OffsetSpan]
    pending_records: int
    watermark: str | None
    watermarks: Mapping[str, str]
    source_watermarks: Mapping[str, SourceWatermark]
    frontiers: Mapping[str, str]
    drains: bool
    broadcast_versions: Mapping[str, int]
    records: int
    dead_letters: Mapping[str, int]
    filtered: Mapping[str, int]
    keys: Mapping[str, int]
    emitted: Mapping[str, int]
    sinks: Mapping[str, Sequence[SegmentVersion]]
    run_bytes: int
    full_bytes: int
    gate: str
    left_behind: Mapping[str, Sequence[SegmentVersion]]
    accepted_losses: Sequence[LossFacts]
    timings_ms: Mapping[str, int]
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedAsset:
    """A table that a checkpoint changed, as its asset event reports it."""

    id: str
    pipeline: str
    timeline: str
    logical_time: str
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedState(ChangedAsset):
    """State of an operator; `versions` names the version that readers open of each table."""

    read: int
    applied: int
    filtered: int
    keys: int
    run_bytes: int
    rows: int
    bytes: int
    versions: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedDeadLetters(ChangedAsset):
    """Dead letters of an operator."""

    read: int
    dead_lettered: int
    rows: int
    bytes: int
    versions: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedSink(ChangedAsset):
    """The table of a sink."""

    emitted: int
    rows: int
    bytes: int
    versions: Mapping[str, int]


def checkpoint_facts(checkpoint: Checkpoint) -> CheckpointFacts:
    """The facts of a completed checkpoint."""
    plan, sealed = checkpoint.plan, checkpoint.sealed
    interval = plan.interval
    return CheckpointFacts(
        id=plan.name,
        pipeline=plan.pipeline,
        timeline=plan.slot.timeline,
        sequence=plan.slot.sequence,
        attempt=sealed.attempt,
        parent=None if plan.parent is None else f"chk-{plan.parent}",
        interval_start=None if interval is None else iso(interval.start_ms),
        interval_end=None if interval is None else iso(interval.end_ms),
        logical_time=iso(plan.logical_time_ms),
        covered_until=iso_or_none(checkpoint.covered_until_ms),
        ranges={str(tp): span_of(r) for tp, r in plan.ranges.items()},
        pending_records=sum(plan.pending.values()),
        watermark=iso_or_none(sealed.facts.watermark_ms),
        watermarks={str(tp): iso(ms) for tp, ms in sorted(sealed.facts.watermarks.items())},
        source_watermarks=source_watermarks(checkpoint),
        frontiers={uid: iso(ms) for uid, ms in checkpoint.now.frontiers.items()},
        drains=plan.drains,
        broadcast_versions=plan.broadcast_versions,
        records=sealed.facts.records,
        dead_letters={a.uid: a.dead_lettered for a in sealed.acks},
        filtered={a.uid: a.filtered for a in sealed.acks},
        keys={a.uid: a.keys for a in sealed.acks},
        emitted=emitted_by_output(checkpoint),
        sinks={table.name: [_version(s) for s in table.handle] for table in checkpoint.sinks.values()},
        run_bytes=sealed.run_bytes,
        full_bytes=sealed.full_bytes,
        gate=_gate(checkpoint),
        left_behind={uid: [_version(s) for s in handle] for uid, handle in plan.left_behind.items()},
        accepted_losses=[loss_of(gap) for gap in plan.losses],
        timings_ms=sealed.timings_ms,
        seconds=round(sum(sealed.timings_ms.values()) / 1000, 3),
    )


def source_watermarks(checkpoint: Checkpoint) -> dict[str, SourceWatermark]:
    """Returns the watermark of each source that declares one, by name."""
    rules = {name: clock.rule for name, clock in checkpoint.plan.clocks.items()}
    return {
        name: SourceWatermark(
            watermark=iso_or_none(clock.watermark_ms),
            idle=clock.is_idle,
            delay=None if (rule := rules[name]) is None else rule.delay_ms,
        )
        for name, clock in checkpoint.source_clocks.items()
    }


def emitted_by_output(checkpoint: Checkpoint) -> dict[str, int]:
    """Returns the number of emitted records by the uid of each output."""
    schemas = checkpoint.plan.schemas
    return {
        uid: output.emitted
        for ack in checkpoint.sealed.acks
        if schemas[ack.uid].emits
        for uid, output in ack.by_output.items()
    }


def span_of(offsets: OffsetRange) -> OffsetSpan:
    """A range of offsets."""
    return OffsetSpan(start=offsets.start, end=offsets.end)


def loss_of(gap: Gap) -> LossFacts:
    """Offsets that were not read."""
    return LossFacts(partition=str(gap.partition), start=gap.lost.start, end=gap.lost.end, why=gap.why)


def iso(ms: int) -> str:
    """Returns milliseconds since the epoch as ISO 8601 in UTC."""
    return datetime.fromtimestamp(ms / 1000, tz=UTC).isoformat().replace("+00:00", "Z")


def iso_or_none(ms: int | None) -> str | None:
    """Returns what `iso` returns; None for None."""
    return None if ms is None else iso(ms)


def as_text(body: Mapping[str, object]) -> str | None:
    """The body of an `OffsetSpan`, a `LossFacts` or a `SegmentVersion` in short; None for any other body."""
    match body:
        case {"partition": partition, "start": start, "end": end, "why": why, **rest} if not rest:
            return f"{partition} [{start}, {end}): {why}"
        case {"start": start, "end": end, **rest} if not rest:
            return f"[{start}, {end})"
        case {"path": path, "version": version, "after": after, "through": through, **rest} if not rest:
            return f"{path} version {version} ({after}, {through}]"
    return None


def changed_assets(made: Checkpoint) -> dict[str, ChangedAsset]:
    """The assets that a checkpoint changed, by name.

    State changes when a key or a list was touched, dead letters when a record was rejected, a sink when it got rows.
    Adopting a compaction changes files but not the answers of readers, so it is no change here.
    """
    return {f"{made.plan.pipeline}/{name}": asset for ack in made.sealed.acks for name, asset in _changed(made, ack)}


def _changed(made: Checkpoint, ack: Ack) -> Iterator[tuple[str, ChangedAsset]]:
    plan, uid = made.plan, ack.uid
    of: dict[str, str] = {
        "id": plan.name,
        "pipeline": plan.pipeline,
        "timeline": plan.slot.timeline,
        "logical_time": iso(plan.logical_time_ms),
        "uid": uid,
    }
    if ack.keys or ack.operator_state != plan.operator_states.get(uid, OperatorState()):
        yield (
            f"state/{uid}",
            ChangedState(
                **of,
                read=ack.read,
                applied=ack.applied,
                filtered=ack.filtered,
                keys=ack.keys,
                run_bytes=ack.run_bytes,
                rows=ack.handle.rows,
                bytes=ack.handle.bytes,
                versions=_versions(ack.handle),
            ),
        )
    if ack.dead_lettered:
        letters = ack.dead_letters
        yield (
            f"dead_letters/{uid}",
            ChangedDeadLetters(
                **of,
                read=ack.read,
                dead_lettered=ack.dead_lettered,
                rows=letters.rows,
                bytes=letters.bytes,
                versions=_versions(letters),
            ),
        )
    for output, planned in plan.sinks_of(uid).items():
        after = ack.by_output.get(output)
        if after is not None and after.sink != planned.handle:
            table = after.sink
            yield (
                f"sinks/{planned.name}",
                ChangedSink(
                    **(of | {"uid": output}),
                    emitted=after.emitted,
                    rows=table.rows,
                    bytes=table.bytes,
                    versions=_versions(table),
                ),
            )


def _version(s: Segment) -> SegmentVersion:
    return SegmentVersion(path=s.path, version=s.version, after=s.after, through=s.through)


def _versions(handle: StateHandle) -> dict[str, int]:
    return {s.path: s.version for s in handle}


def _gate(checkpoint: Checkpoint) -> str:
    expectations = checkpoint.sealed.verdict.expectations
    held = sum(e.success for e in expectations)
    return f"{held} of {len(expectations)} held" if expectations else "none"
