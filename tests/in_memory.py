"""A checkpoint line in memory: what the coordinator's unit tests and the simulation both stand on."""

from dataclasses import dataclass

from tidemark.adapters.memory import ManualClock, MemoryCompute, MemoryLog, MemoryTables, SequentialIds
from tidemark.coordinator.attempts import OwnedAttempt
from tidemark.coordinator.coordinator import CheckpointCoordinator
from tidemark.coordinator.promotion import Promotion
from tidemark.coordinator.recovery import Recovery
from tidemark.coordinator.savepoints import Savepoints
from tidemark.engine.job import CheckpointJob
from tidemark.model.checkpoint import Sealed
from tidemark.pipeline import Pipeline
from tidemark.ports import CheckpointStore

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

    @property
    def recovery(self) -> Recovery:
        """Forks and restores."""
        return Recovery(coordinator=self.coordinator)

    @property
    def promotion(self) -> Promotion:
        """Promotes."""
        return Promotion(coordinator=self.coordinator)

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
