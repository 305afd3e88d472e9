"""The restore point that a new timeline begins with: a completed checkpoint as a genesis that fits the pipeline."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from tidemark.coordinator.plans.inputs import Parent, carried_over
from tidemark.coordinator.records.timelines import Head
from tidemark.declare.pipeline import Pipeline
from tidemark.errors import UsageError
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.checkpoint.store_objects import Genesis
from tidemark.model.core.canonical import checksum
from tidemark.model.core.names import operator_of
from tidemark.model.state.evolution import NOTHING_REPLACED, ReplacedStates

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePoint:
    """The checkpoint that a timeline begins with, and the options.

    Attributes:
        checkpoint: the checkpoint to begin at.
        savepoint: the savepoint that names the checkpoint, if the request named one.
        renamed: old uids of the state, with their new uids.
        allow_non_restored_state: leave the state of operators that the pipeline does not declare behind.
        claim: hand the savepoint's pin over to the timeline (Flink's CLAIM); only one restore can have it.
        restore_sinks: a restore takes Delta sinks back together with the state; otherwise they keep their rows.
        note: the purpose of the timeline, for people.
        replaced: state that a transform writes. The genesis names it as it is, so it stays pinned and readable.
    """

    checkpoint: Checkpoint
    savepoint: str = ""
    renamed: Mapping[str, str] = field(default_factory=dict)
    allow_non_restored_state: bool = False
    claim: bool = False
    restore_sinks: bool = False
    note: str = ""
    replaced: ReplacedStates = NOTHING_REPLACED

    def __post_init__(self) -> None:
        if self.claim and not self.savepoint:
            raise UsageError(
                f"claim without a savepoint: {self.checkpoint.plan.name} is an ordinary checkpoint",
                next="omit --claim, or name a savepoint.",
            )

    def request(self, live: str) -> str:
        """Names the request to restore this while a timeline is live; equal requests have equal names."""
        body = {"checkpoint": self.checkpoint.id, "savepoint": self.savepoint, "renamed": dict(self.renamed)}
        flags = {"allow": self.allow_non_restored_state, "claim": self.claim, "sinks": self.restore_sinks}
        return checksum({**body, **flags, "live": live})

    def genesis(self, pipeline: Pipeline | None, *, write_id: str, at_ms: int) -> Genesis:
        """The genesis record, without the name of a timeline yet.

        Args:
            pipeline: the current declaration, which must fit; None = the first plan checks it.
            write_id: id of the write.
            at_ms: the writer's clock.

        Raises:
            UsageError: a rename names an operator without state, or a uid that is taken.
            IncompatibleStateError: the declaration does not fit; the message lists uids and fields.
        """
        found = self._as_it_is(write_id, at_ms)
        return found if pipeline is None else self._without_left_behind(found, pipeline)

    def _as_it_is(self, write_id: str, at_ms: int) -> Genesis:
        found, plan = self.checkpoint, self.checkpoint.plan
        self._refuse_renames(plan.schemas)
        schemas = {uid: replace(schema, uid=uid) for uid, schema in self._named(plan.schemas).items()}
        return Genesis(
            timeline="",
            sequence=1,
            parent=found.id,
            parent_timeline=plan.slot.timeline,
            ranges=plan.ranges,
            topic_ids=plan.topic_ids,
            sources=plan.sources,
            isolation=plan.isolation,
            handles=self._named(found.handles),
            dead_letters=self._named({a.uid: a.dead_letters for a in found.sealed.acks}),
            schemas=schemas,
            sinks={self._output_named(uid, plan): table for uid, table in found.sinks.items()},
            outboxes=plan.outboxes,
            operator_states=self._named(found.operator_states),
            logical_time_ms=plan.logical_time_ms,
            watermark_ms=found.sealed.facts.watermark_ms,
            watermarks=found.sealed.facts.watermarks,
            clocks=self._named(found.sealed.facts.clocks),
            repeats_to=plan.repeats_to,
            broadcast_versions=self._named(plan.broadcast_versions),
            broadcast_ids=self._named(plan.broadcast_ids),
            covered_until_ms=found.covered_until_ms,
            why="",
            savepoint=self.savepoint,
            claim=self.claim,
            renamed=dict(self.renamed),
            note=self.note,
            write_id=write_id,
            at_ms=at_ms,
            parent_revision=found.revision,
        )

    def _without_left_behind(self, found: Genesis, pipeline: Pipeline) -> Genesis:
        carried = carried_over(
            Parent.of(Head(timeline="", sequence=1, entry=found)),
            pipeline.schemas(),
            pipeline.operator_states(),
            allow_removed=self.allow_non_restored_state,
            replaced=self.replaced,
        )
        gone = carried.left_behind

        def kept(of: Mapping[str, T]) -> dict[str, T]:
            return {uid: value for uid, value in of.items() if uid not in gone}

        return replace(
            found,
            handles=kept(found.handles),
            dead_letters=kept(found.dead_letters),
            schemas=kept(found.schemas),
            operator_states=kept(found.operator_states),
            broadcast_versions=kept(found.broadcast_versions),
            broadcast_ids=kept(found.broadcast_ids),
            left_behind=gone,
        )

    def _named(self, of: Mapping[str, T]) -> dict[str, T]:
        return {self.renamed.get(uid, uid): value for uid, value in of.items()}

    def _output_named(self, output: str, plan: CheckpointPlan) -> str:
        """The uid of an output of an operator that may be renamed."""
        uid = operator_of(output, plan.schemas)
        return self.renamed.get(uid, uid) + output.removeprefix(uid)

    def _refuse_renames(self, known: Mapping[str, object]) -> None:
        wrong = [old for old in self.renamed if old not in known]
        taken = [new for new in self.renamed.values() if new in known and new not in self.renamed]
        twice = len(set(self.renamed.values())) < len(self.renamed)
        if wrong or taken or twice:
            what = f"no operator {', '.join(wrong)}" if wrong else "two operators would have one uid"
            raise UsageError(
                f"cannot rename: {what} in {self.checkpoint.plan.name}",
                safe="nothing was written.",
                next=f"name operators of the checkpoint: {', '.join(known)}.",
            )
