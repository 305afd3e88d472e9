"""The parent of a plan: the newest completed checkpoint of a timeline, or the genesis that began it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tidemark.coordinator.records.timelines import Head
from tidemark.errors import ConflictError
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.offset_coverage import OffsetCoverage
from tidemark.model.checkpoint.operator_lists import OperatorState
from tidemark.model.checkpoint.segments import StateHandle
from tidemark.model.checkpoint.sinks import SinkTable
from tidemark.model.checkpoint.store_objects import Closing, Genesis
from tidemark.model.core.offsets import TopicPartition
from tidemark.model.schema.operator_schema import OperatorSchema


@dataclass(frozen=True, slots=True, kw_only=True)
class Parent:
    """The state of a timeline that the next plan starts from. The default is a pipeline without checkpoints.

    Attributes:
        id: id of the parent checkpoint.
        ends: end offsets of its ranges, which are the starts of the next ones.
        topic_ids: Kafka's topic ids when it was read.
        sources: topics per input.
        isolation: isolation level of its read; None if unknown.
        handles: state per uid.
        dead_letters: dead-letter table per uid.
        schemas: stored schema per uid.
        tables: folder per uid, if the parent is on the same timeline.
        logical_time_ms: its logical time.
        watermark_ms: watermark after it.
        watermarks: the same per partition.
        broadcast_versions: version of the copied table, per broadcast state that copies one.
        broadcast_ids: Delta's id of the same tables.
        sinks: table of every sink, by uid of its operator.
        outboxes: outboxes of sinks that are no longer declared, by name; see `CheckpointPlan.outboxes`.
        operator_states: lists per uid of an operator that declared some.
        revision: revision of its manifest, or of the genesis.
    """

    id: int | None = None
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    isolation: str | None = None
    handles: Mapping[str, StateHandle] = field(default_factory=dict)
    dead_letters: Mapping[str, StateHandle] = field(default_factory=dict)
    schemas: Mapping[str, OperatorSchema] = field(default_factory=dict)
    tables: Mapping[str, str] = field(default_factory=dict)
    logical_time_ms: int | None = None
    watermark_ms: int | None = None
    watermarks: Mapping[TopicPartition, int] = field(default_factory=dict)
    broadcast_versions: Mapping[str, int] = field(default_factory=dict)
    broadcast_ids: Mapping[str, str] = field(default_factory=dict)
    sinks: Mapping[str, SinkTable] = field(default_factory=dict)
    outboxes: Mapping[str, SinkTable] = field(default_factory=dict)
    operator_states: Mapping[str, OperatorState] = field(default_factory=dict)
    revision: int = 0

    @classmethod
    def of(cls, head: Head) -> "Parent":
        """Returns the parent at the head of a timeline.

        Raises:
            ConflictError: the timeline was closed.
        """
        entry = head.entry
        if entry is None:
            return cls()
        if isinstance(entry, Closing):
            raise ConflictError(
                f"timeline {head.timeline} was closed"
                + (f" in favour of {entry.successor}" if entry.successor else ""),
                next="run the pipeline again: it continues with the live timeline.",
            )
        return cls._of_genesis(entry) if isinstance(entry, Genesis) else cls._of_checkpoint(entry)

    @classmethod
    def _of_checkpoint(cls, found: Checkpoint) -> "Parent":
        plan = found.plan
        return cls(
            id=plan.id,
            ends=plan.ranges.ends,
            topic_ids=plan.topic_ids,
            sources=plan.sources,
            isolation=plan.isolation,
            handles=found.handles,
            dead_letters={a.uid: a.dead_letters for a in found.sealed.acks},
            schemas=plan.schemas,
            tables=plan.tables,
            logical_time_ms=plan.logical_time_ms,
            watermark_ms=found.sealed.facts.watermark_ms,
            watermarks=found.sealed.facts.watermarks,
            broadcast_versions=plan.broadcast_versions,
            broadcast_ids=plan.broadcast_ids,
            sinks=found.sinks,
            outboxes=plan.outboxes,
            operator_states=found.operator_states,
            revision=found.revision,
        )

    @classmethod
    def _of_genesis(cls, found: Genesis) -> "Parent":
        return cls(
            id=found.parent,
            ends=found.ranges.ends,
            topic_ids=found.topic_ids,
            sources=found.sources,
            isolation=found.isolation or None,
            handles=found.handles,
            dead_letters=found.dead_letters,
            schemas=found.schemas,
            logical_time_ms=found.logical_time_ms,
            watermark_ms=found.watermark_ms,
            watermarks=found.watermarks,
            broadcast_versions=found.broadcast_versions,
            broadcast_ids=found.broadcast_ids,
            sinks={uid: _with_coverage(table, found) for uid, table in found.sinks.items()},
            outboxes=found.outboxes,
            operator_states=found.operator_states,
            revision=found.revision,
        )


def _with_coverage(table: SinkTable, genesis: Genesis) -> SinkTable:
    """The sink table of a genesis. One of 0.1 covers all offsets up to its checkpoint, and `emitted_until`."""
    covered = table.coverage(genesis.topic_ids)
    if table.covered is None and not table.needs_delivery:
        covered |= OffsetCoverage.below(genesis.ranges.ends, genesis.topic_ids)
    return replace(table, covered=covered)
