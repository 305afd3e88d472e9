"""A checkpoint line in memory: what the coordinator's unit tests and the simulation both stand on."""

from dataclasses import dataclass

from tidemark.adapters.memory import ManualClock, MemoryCompute, MemoryLog, MemoryTables, SequentialIds
from tidemark.coordinator.attempts import OwnedAttempt
from tidemark.coordinator.coordinator import CheckpointCoordinator
from tidemark.coordinator.savepoints import Savepoints
from tidemark.coordinator.timelines import Head
from tidemark.engine.job import CheckpointJob
from tidemark.model import keys
from tidemark.model.checkpoint import Checkpoint, Sealed
from tidemark.model.records import Closing, Genesis
from tidemark.pipeline import Pipeline
from tidemark.ports import CheckpointStore, PutOutcome

START_MS = 1_000_000
"""What a clock of a test starts at."""


@dataclass(frozen=True)
class Payment:
    """One record."""

    account: str | None
    amount: int


def payment(account: str | None, amount: int) -> bytes:
    """A record as it lies in the topic; without an account it has no such field."""
    return (f'{{"account":"{account}","amount":{amount}}}' if account else f'{{"amount":{amount}}}').encode()


class InMemory:
    """The verbs over parts in memory; who derives from it makes the parts, and may wrap them."""

    store: CheckpointStore
    log: MemoryLog
    tables: MemoryTables
    clock: ManualClock
    ids: SequentialIds

    @property
    def coordinator(self) -> CheckpointCoordinator:
        """A coordinator over these parts; every process has its own."""
        return CheckpointCoordinator(
            store=self.store,
            log=self.log,
            clock=self.clock,
            write_ids=self.ids,
            files_exist=self.tables.files_exist,
        )

    @property
    def savepoints(self) -> Savepoints:
        """The savepoints of the pipeline."""
        return Savepoints(self.coordinator)

    def executed(self, pipeline: Pipeline, attempt: OwnedAttempt) -> Sealed:
        """Executes an attempt up to its seal, by the product's own order of steps."""
        job = CheckpointJob(
            compute=MemoryCompute(pipeline=pipeline, log=self.log, tables=self.tables),
            tables=self.tables,
            clock=self.clock,
            write_ids=self.ids,
            crash=lambda step, moment: None,
            max_dead_letters=pipeline.max_dead_letters,
        )
        return job.execute(attempt)

    def restored(self, found: Checkpoint, name: str, head: Head) -> PutOutcome | None:
        """A new timeline from a checkpoint, then the closing of the head's; None where the name is taken."""
        put = self.coordinator.objects.put
        if put(keys.slot_key(name, 1), self._genesis(found, name)) is PutOutcome.LOST:
            return None
        closing = Closing(
            timeline=head.timeline, sequence=head.sequence + 1, successor=name, why="restore", write_id=self.ids()
        )
        return put(keys.slot_key(head.timeline, head.sequence + 1), closing)

    def _genesis(self, found: Checkpoint, name: str) -> Genesis:
        return Genesis(
            timeline=name,
            sequence=1,
            parent=found.id,
            parent_timeline=found.plan.slot.timeline,
            ranges=found.plan.ranges,
            topic_ids=found.plan.topic_ids,
            sources=found.plan.sources,
            handles=found.handles,
            dead_letters={a.uid: a.dead_letters for a in found.sealed.acks},
            schemas=found.plan.schemas,
            sinks=found.sinks,
            operator_states=found.operator_states,
            logical_time_ms=found.plan.logical_time_ms,
            watermark_ms=found.sealed.facts.watermark_ms,
            watermarks=found.sealed.facts.watermarks,
            broadcast_versions=found.plan.broadcast_versions,
            broadcast_ids=found.plan.broadcast_ids,
            covered_until_ms=found.covered_until_ms,
            why="restore",
            write_id=self.ids(),
        )
