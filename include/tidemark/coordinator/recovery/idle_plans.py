"""The plan of a checkpoint that reads nothing: its state comes from outside, by an import or a patch.

The plan's ranges end where they begin, so every process that executes it writes the same manifest.
"""

from dataclasses import dataclass, replace

from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.plans.clock_rules import kept_clocks
from tidemark.coordinator.plans.inputs import Parent, PlannedInputs
from tidemark.coordinator.plans.sink_inputs import planned_outboxes, planned_sinks, timeline_sinks
from tidemark.coordinator.plans.table_copies import PlannedCopies
from tidemark.coordinator.records.timelines import Erasures, Head
from tidemark.declare.pipeline import Pipeline
from tidemark.model.checkpoint.plan import CheckpointPlan, Interval, Slot
from tidemark.model.checkpoint.store_objects import Genesis
from tidemark.model.core.offsets import BarrierOffsets, OffsetRanges
from tidemark.model.retention.export_manifest import Export
from tidemark.sql.resolve import names_of, stored_texts


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """The parts of such a plan.

    Attributes:
        pipeline: the current declaration.
        slot: the slot that the plan takes.
        of: the genesis or export whose offsets, times and sinks the plan continues.
        inputs: the state that the plan names.
        origin: lets the process that made the plan recognize it.
    """

    pipeline: Pipeline
    slot: Slot
    of: Genesis | Export
    inputs: PlannedInputs
    origin: str

    def plan(self, c: CheckpointCoordinator, number: int) -> CheckpointPlan:
        """Returns the plan with an id that was allocated; puts nothing.

        Raises:
            TidemarkError: see `timeline_sinks`.
        """
        revision = self.of.revision if isinstance(self.of, Genesis) else 0
        return replace(self._draft(c, number), parent_revision=revision, erasures=Erasures(c.objects).newest())

    def _draft(self, c: CheckpointCoordinator, number: int) -> CheckpointPlan:
        of, pipeline, inputs, slot = self.of, self.pipeline, self.inputs, self.slot
        covered, schemas, copied = of.covered_until_ms, inputs.schemas, self._copied
        before = _before(of)
        sinks = planned_sinks(timeline_sinks(pipeline, slot.timeline, before, c.log, c.timelines), number)
        nothing = OffsetRanges.between(of.ranges.ends, BarrierOffsets(of.ranges.ends))
        return CheckpointPlan(
            pipeline=pipeline.name,
            id=number,
            slot=slot,
            parent=of.parent if isinstance(of, Genesis) else None,
            ranges=nothing,
            topic_ids=of.topic_ids,
            sources=of.sources,
            handles=inputs.handles,
            dead_letters=inputs.dead_letters,
            sinks=sinks,
            outboxes=planned_outboxes(before, sinks),
            tables=inputs.tables(pipeline.name, slot.timeline, number),
            schemas=schemas,
            adopted={},
            operator_states=inputs.operator_states,
            logical_time_ms=of.logical_time_ms,
            watermark_ms=of.watermark_ms,
            watermarks=of.watermarks,
            clocks=kept_clocks(of.clocks),
            caps_event_time=True,
            broadcast_versions=copied.versions,
            broadcast_ids=copied.ids,
            interval=None if covered is None else Interval(start_ms=covered, end_ms=covered),
            covers=True,
            isolation=of.isolation or pipeline.isolation,
            fingerprint=pipeline.fingerprint,
            formats=pipeline.formats,
            losses=(),
            origin=self.origin,
            planned_at_ms=c.clock.now_ms(),
            write_id=c.write_ids(),
            queries={uid: names_of(stored_texts(schema)) for uid, schema in schemas.items()},
            repeats_to=of.repeats_to if isinstance(of, Genesis) else 0,
            columns=pipeline.columns,
        )

    @property
    def _copied(self) -> PlannedCopies:
        """Broadcast states that are taken over with their version."""
        of = self.of
        there = of.states if isinstance(of, Export) else of.handles
        uids = [uid for uid in self.pipeline.tables if uid in of.broadcast_versions and uid in there]
        return PlannedCopies(
            versions={uid: of.broadcast_versions[uid] for uid in uids}, ids={uid: of.broadcast_ids[uid] for uid in uids}
        )


def parent_of(genesis: Genesis) -> Parent:
    """The parent of the first plan after a genesis."""
    return Parent.of(Head(timeline=genesis.timeline, sequence=genesis.sequence, entry=genesis))


def _before(of: Genesis | Export) -> Parent:
    """The parent that sinks continue from; an export has none."""
    return parent_of(of) if isinstance(of, Genesis) else Parent()
