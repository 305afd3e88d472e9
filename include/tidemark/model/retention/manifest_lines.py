"""The parts of a manifest that retention needs: a line of the index (adr/0017)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.segments import StateHandle


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestLine:
    """A completed checkpoint, reduced to what decides which files are kept.

    Attributes:
        id, timeline, sequence, revision, logical_time_ms: as in its manifest.
        attempt: the attempt that was sealed.
        repeats: id of the last checkpoint that it repeats on a fork; None = none.
        handles: state per uid.
        others: all other handles: dead letters, sinks, state left behind.
        tables: folder of the state per uid.
        sinks: kinds of its sinks (`SinkTable.kind`).
        sends: whether it has emitted anything for a Kafka sink.
        run: id of its run, if it was one that may make several checkpoints (adr/0032).
    """

    id: int
    timeline: str
    sequence: int
    revision: int
    logical_time_ms: int
    attempt: int
    repeats: int | None
    handles: Mapping[str, StateHandle]
    others: tuple[StateHandle, ...]
    tables: Mapping[str, str]
    sinks: frozenset[str]
    sends: bool
    run: str

    @classmethod
    def of(cls, found: Checkpoint) -> "ManifestLine":
        """Returns the line of a manifest."""
        plan, acks, sinks = found.plan, found.sealed.acks, found.plan.sinks
        emitted = {uid for uid, output in found.outputs.items() if output.emitted}
        beside = (handle for a in acks for handle in (a.dead_letters, *a.sinks))
        return cls(
            id=found.id,
            timeline=plan.slot.timeline,
            sequence=plan.slot.sequence,
            revision=found.revision,
            logical_time_ms=plan.logical_time_ms,
            attempt=found.sealed.attempt,
            repeats=plan.replays[-1] if plan.replays else None,
            handles=found.handles,
            # Only files count here, whether their rows have expired or not.
            others=tuple(StateHandle(h.segments) for h in (*beside, *plan.left_behind.values()) if h),
            tables=dict(plan.tables),
            sinks=frozenset(table.kind for table in (*sinks.values(), *plan.outboxes.values())),
            sends=any(table.needs_delivery and uid in emitted for uid, table in sinks.items()),
            run=plan.run,
        )

    @property
    def name(self) -> str:
        """`chk-17`."""
        return f"chk-{self.id}"

    @property
    def named(self) -> Iterator[StateHandle]:
        """Everything that it names."""
        yield from self.handles.values()
        yield from self.others
