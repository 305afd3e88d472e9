"""Tests of pipelines without Kafka, Spark or Airflow: `replay(pipeline, [records, BARRIER, records, CRASH, BARRIER])`.

Everything but the outside world is real: the coordinator, the order of a checkpoint's steps, plans, attempts,
manifests. The gate is not asked, because it needs Spark; folds mean the same as there.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidemark.coordinator.checkpoints.attempts import OwnedAttempt
from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.checkpoints.job import CheckpointJob
from tidemark.coordinator.checkpoints.loop import CheckpointLoop
from tidemark.coordinator.records.erasure_records import Erasures
from tidemark.declare.pipeline import Pipeline
from tidemark.errors import UsageError
from tidemark.model.checkpoint.manifest import Checkpoint, Sealed
from tidemark.model.checkpoint.operator_lists import OperatorState
from tidemark.ports import PlanRequest
from tidemark.processing.broadcasts import broadcast_records
from tidemark.processing.live_operator_state import opened_whole
from tidemark.testing.twin.memory import (
    Feed,
    ManualClock,
    MemoryCompute,
    MemoryForeignTables,
    MemoryLog,
    MemorySender,
    MemoryStore,
    MemoryTables,
    SequentialIds,
)

__all__ = ["BARRIER", "CRASH", "Barrier", "Crash", "Overwrite", "Replayed", "replay"]

_NOW_MS = 4_102_444_800_000
"""The replay's clock (2100-01-01): behind every event time that a test is likely to use."""


@dataclass(frozen=True)
class Barrier:
    """Ends a checkpoint: all records before it belong to it."""


@dataclass(frozen=True)
class Crash:
    """Kills the attempt of the next barrier; a plain re-run then repairs.

    Attributes:
        step: crash point: `ids queries plan attempt read process.<uid> fold.<uid> runs.<uid> dead_letters.<uid>
            sinks.<uid> emitted.<uid> outputs.<uid> gate fsync sent.<uid> seal publish`; inside `runs`, `sinks` (dead
            letters) and `outputs`, between the table's version and the commit, `commit.runs.<uid>`,
            `commit.sinks.<uid>`, `commit.outputs.<uid>`.
        moment: `before` or `after`.
    """

    step: str = "seal"
    moment: str = "before"

    def at(self, step: str, moment: str = "before") -> "Crash":
        """A crash at another point."""
        return Crash(step, moment)


BARRIER = Barrier()
CRASH = Crash()


@dataclass(frozen=True)
class Overwrite:
    """Gives the table of a broadcast state a new version.

    Attributes:
        path: of the `DeltaTable`.
        records: its rows, as instances of the declared record.
    """

    path: str
    records: Sequence[object]


class _Killed(BaseException):
    """The process is gone; nothing in it may catch this."""


@dataclass
class _World:
    """What survives a crash: store, log, tables; and the crash that is due."""

    pipeline: Pipeline
    parallelism: int = 1
    store: MemoryStore = field(default_factory=MemoryStore)
    log: MemoryLog = field(default_factory=MemoryLog)
    tables: MemoryTables = field(default_factory=MemoryTables)
    clock: ManualClock = field(default_factory=lambda: ManualClock(_NOW_MS))
    ids: SequentialIds = field(default_factory=SequentialIds)
    due: list[Crash] = field(default_factory=list)
    foreign: MemoryForeignTables = field(default_factory=MemoryForeignTables)
    sender: MemorySender = field(default_factory=MemorySender)

    @property
    def compute(self) -> MemoryCompute:
        return MemoryCompute(
            pipeline=self.pipeline,
            log=self.log,
            tables=self.tables,
            foreign=self.foreign,
            parallelism=self.parallelism,
            blocked=Erasures(self.coordinator.objects).blocked,
        )

    @property
    def coordinator(self) -> CheckpointCoordinator:
        return CheckpointCoordinator(
            store=self.store,
            log=self.log,
            clock=self.clock,
            write_ids=self.ids,
            listener=self.crash,
            files_exist=self.tables.files_exist,
            foreign=self.foreign,
            name=self.pipeline.name,
        )

    def crash(self, step: str, moment: str) -> None:
        if self.due and (self.due[0].step, self.due[0].moment) == (step, moment):
            del self.due[0]
            raise _Killed

    def execute(self, attempt: OwnedAttempt) -> Sealed:
        job = CheckpointJob(
            compute=self.compute,
            tables=self.tables,
            clock=self.clock,
            write_ids=self.ids,
            listener=self.crash,
            max_dead_letters=self.pipeline.max_dead_letters,
            sender=self.sender,
        )
        return job.execute(attempt)


@dataclass(frozen=True)
class Replayed:
    """What a replay ended with.

    Attributes:
        checkpoints: the completed ones, oldest first.
        crashes: how often an attempt was killed.
    """

    checkpoints: tuple[Checkpoint, ...]
    crashes: int
    _world: _World = field(repr=False)

    def state(self, uid: str, checkpoint: Checkpoint | None = None) -> dict[Any, Any]:
        """State per key after a checkpoint, the last one by default; a key of several columns is a tuple.

        Of an operator instances of its `state.Keyed` class, of a broadcast state its records. Timestamps are in UTC.
        """
        rows = self.rows(uid, checkpoint)
        for broadcast in self._world.pipeline.broadcast:
            if broadcast.uid == uid:
                return broadcast_records(broadcast, rows.values())
        made = self._world.pipeline.operator(uid).state
        names = [d.name for d in made.descriptors]
        return {key if len(key) > 1 else key[0]: made(**{n: row[n] for n in names}) for key, row in rows.items()}

    def operator_state(self, uid: str, checkpoint: Checkpoint | None = None) -> Any:
        """The operator state of a `Process` after a checkpoint: its `state.Operator` class with all lists whole."""
        found = self._at(checkpoint)
        lists = OperatorState() if found is None else found.operator_states.get(uid, OperatorState())
        return opened_whole(self._world.pipeline.operator(uid), lists)

    def rows(self, uid: str, checkpoint: Checkpoint | None = None) -> dict[tuple[Any, ...], dict[str, Any]]:
        """As `state`, as rows: key columns, state fields and `_changed`."""
        found = self._at(checkpoint)
        return {} if found is None else self._world.compute.resolve(found, uid)

    def dead_letters(self, uid: str, checkpoint: Checkpoint | None = None) -> list[Mapping[str, object]]:
        """The operator's dead letters, in order of their positions."""
        found = self._at(checkpoint)
        ack = None if found is None else found.ack(uid)
        rows = [] if ack is None else self._world.tables.rows(ack.dead_letters)
        return sorted(rows, key=lambda r: (str(r["topic"]), str(r["partition"]), int(str(r["offset"]))))

    def emitted(self, uid: str, checkpoint: Checkpoint | None = None) -> list[Mapping[str, object]]:
        """What lies in the sink of a `Process` after a checkpoint: emitted fields, uid, position, number; in order."""
        found = self._at(checkpoint)
        table = None if found is None else found.sinks.get(uid)
        rows = [] if table is None else self._world.tables.rows(table.handle)
        return sorted(rows, key=lambda r: tuple(str(r[n]).zfill(20) for n in ("_topic", "_partition", "_offset", "_n")))

    def sent(self, topic: str) -> list[tuple[str, dict[str, Any]]]:
        """Ids and JSON fields of all that attempts have sent to a topic, in order: `guarantee="at_least_once"`.

        What an attempt sent before it died is there, and again what its successor sent.
        """
        return [(m.id, json.loads(m.value)) for m in self._world.sender.arrived.get(topic, [])]

    def _at(self, checkpoint: Checkpoint | None) -> Checkpoint | None:
        if checkpoint is not None:
            return checkpoint
        return self.checkpoints[-1] if self.checkpoints else None


Script = Sequence[Iterable[object] | Barrier | Crash | Overwrite]
"""Lists of records, barriers, crashes and new versions of tables, in order."""


def replay(pipeline: Pipeline, script: Script, *, partitions: int = 1, parallelism: int = 1) -> Replayed:
    """Feeds records to a pipeline in memory, and cuts, kills and repairs where the script says so.

    Args:
        pipeline: the declaration.
        script: lists of records, with `BARRIER` where a checkpoint ends and `CRASH` before the barrier whose first
            attempt dies. A record is an instance of the source's dataclass, a JSON-able dict, or raw bytes (which may
            be undecodable: they become dead letters); None is a null value. With several inputs (sources, and topics
            of broadcast states) it is an instance of the dataclass of one of them, or a pair (name, record); with a
            message key it is a triple (name, record, key).
        partitions: of each topic; records go round.
        parallelism: tasks of an operator with operator state; keys are divided over them as in Spark.

    Raises:
        UsageError: a record before no barrier would be lost from view, or a crash point that was never passed.
        TidemarkError: as a checkpoint raises it, for instance DeadLettersExceededError.
    """
    world = _World(pipeline, parallelism)
    feed = Feed(pipeline, world.log, partitions)
    done: list[Checkpoint] = []
    crashes = 0
    for part in script:
        if isinstance(part, Crash):
            world.due.append(part)
        elif isinstance(part, Barrier):
            crashes += _complete(world, done)
        elif isinstance(part, Overwrite):
            world.foreign.overwrite(part.path, part.records)
        else:
            for record in part:
                feed.send(record, world.clock.now_ms())
    if world.due:
        raise UsageError("a CRASH stands behind the last BARRIER", next="end the script with BARRIER.")
    return Replayed(tuple(done), crashes, world)


def _complete(world: _World, done: list[Checkpoint]) -> int:
    """Runs until a checkpoint of this barrier is complete; returns the number of crashes on the way."""
    crashes, known = 0, len(list(world.coordinator.checkpoints()))
    while True:
        try:
            CheckpointLoop(coordinator=world.coordinator, pipeline=world.pipeline, execute=world.execute).run_once(
                PlanRequest(origin="replay")
            )
        except _Killed:
            crashes += 1
        else:
            break
        if len(list(world.coordinator.checkpoints())) > known:
            break
    if world.due:
        raise UsageError(
            f"the crash point {world.due[0].step}:{world.due[0].moment} was not passed",
            next="name a step that this checkpoint takes; an operator without records writes no run.",
        )
    done.append(next(iter(world.coordinator.checkpoints())))
    return crashes
