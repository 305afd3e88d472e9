"""Tests pipelines without Kafka, Spark or Airflow: `replay(pipeline, [records, BARRIER, records, CRASH, BARRIER])`.

Only the outside world is simulated: the coordinator, the order of a checkpoint's steps, plans, attempts and manifests
are the real ones. Folds compute the same as in Spark. The gate does not run, because it needs Spark.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tidemark.coordinator.checkpoints.attempts import OwnedAttempt
from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.checkpoints.job import CheckpointJob
from tidemark.coordinator.checkpoints.loop import CheckpointLoop
from tidemark.coordinator.records.timelines import Erasures
from tidemark.declare.flat_map import FlatMap
from tidemark.declare.pipeline import Pipeline
from tidemark.errors import UsageError
from tidemark.model.checkpoint.manifest import Checkpoint, Sealed
from tidemark.model.checkpoint.segments import OperatorState
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
from tidemark.testing.twin.row_files import emitted_rows

__all__ = ["BARRIER", "CRASH", "Barrier", "Crash", "Overwrite", "Replayed", "replay"]

_NOW_MS = 4_102_444_800_000
"""The replay's clock (2100-01-01), which is later than any event time that a test is likely to use."""


@dataclass(frozen=True)
class Barrier:
    """Ends a checkpoint, to which all records before the barrier belong."""


@dataclass(frozen=True)
class Crash:
    """Kills the attempt at the next barrier; a plain rerun then completes the checkpoint.

    Attributes:
        step: the crash point, one of `ids queries plan attempt read process.<uid> fold.<uid> runs.<uid>
            dead_letters.<uid> sinks.<uid> emitted.<uid> outputs.<uid> gate fsync sent.<uid> seal publish`; inside
            `runs`, `sinks` (dead letters) and `outputs`, between the table's version and the commit,
            `commit.runs.<uid>`, `commit.sinks.<uid>`, `commit.outputs.<uid>`.
        moment: `before` or `after`.
    """

    step: str = "seal"
    moment: str = "before"

    def at(self, step: str, moment: str = "before") -> "Crash":
        """Returns a crash at another point."""
        return Crash(step, moment)


BARRIER = Barrier()
CRASH = Crash()


@dataclass(frozen=True)
class Overwrite:
    """Writes a new version of a broadcast state's table.

    Attributes:
        path: the path of the `DeltaTable`.
        records: the table's new rows, as instances of the declared record.
    """

    path: str
    records: Sequence[object]


class _Killed(BaseException):
    """Simulates the end of the process, so no code in it may catch this."""


@dataclass
class _World:
    """The parts that survive a crash: store, log and tables; and the crash that is due."""

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
            blocked=Erasures(self.coordinator.objects).blocked_keys,
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
            find_letters=self.tables.find_letters,
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
    """The result of a replay.

    Attributes:
        checkpoints: the completed checkpoints, oldest first.
        crashes: the number of attempts that were killed.
    """

    checkpoints: tuple[Checkpoint, ...]
    crashes: int
    _world: _World = field(repr=False)

    def state(self, uid: str, checkpoint: Checkpoint | None = None) -> dict[Any, Any]:
        """Returns the state per key after a checkpoint (default: the last one); a key of several columns is a tuple.

        The values are instances of the operator's `state.Keyed` class, or records of a broadcast state. Timestamps are
        in UTC.
        """
        rows = self.rows(uid, checkpoint)
        for broadcast in self._world.pipeline.broadcast:
            if broadcast.uid == uid:
                return broadcast_records(broadcast, rows.values())
        operator = self._world.pipeline.operator(uid)
        if isinstance(operator, FlatMap):
            raise UsageError(f"{uid} keeps no state: it is a FlatMap", next="ask for the rows of its sink, or a fold.")
        made = operator.state
        names = [d.name for d in made.descriptors]
        return {key if len(key) > 1 else key[0]: made(**{n: row[n] for n in names}) for key, row in rows.items()}

    def operator_state(self, uid: str, checkpoint: Checkpoint | None = None) -> Any:
        """Returns the operator state of a `Process` after a checkpoint: its `state.Operator` class, with full lists."""
        found = self._at(checkpoint)
        lists = OperatorState() if found is None else found.operator_states.get(uid, OperatorState())
        return opened_whole(self._world.pipeline.operator(uid), lists)

    def rows(self, uid: str, checkpoint: Checkpoint | None = None) -> dict[tuple[Any, ...], dict[str, Any]]:
        """Returns the same as `state`, as rows: key columns, state fields and `_changed`."""
        found = self._at(checkpoint)
        return {} if found is None else self._world.compute.resolve(found, uid)

    def dead_letters(self, uid: str, checkpoint: Checkpoint | None = None) -> list[Mapping[str, object]]:
        """Returns the operator's dead letters, ordered by their positions."""
        found = self._at(checkpoint)
        ack = None if found is None else found.ack(uid)
        rows = [] if ack is None else emitted_rows(self._world.tables, ack.dead_letters)
        return sorted(rows, key=lambda r: (str(r["topic"]), str(r["partition"]), int(str(r["offset"]))))

    def emitted(self, uid: str, checkpoint: Checkpoint | None = None) -> list[Mapping[str, object]]:
        """Returns the rows in the sink of a `Process` after a checkpoint: emitted fields, uid, position and number."""
        found = self._at(checkpoint)
        table = None if found is None else found.sinks.get(uid)
        rows = [] if table is None else emitted_rows(self._world.tables, table.handle)
        return sorted(rows, key=_position)

    def sent(self, topic: str) -> list[tuple[str, dict[str, Any]]]:
        """Returns ids and JSON fields of all records that attempts have sent to a topic, in order.

        It is for sinks with `guarantee="at_least_once"`: if an attempt dies, its records appear again when the next
        attempt sends them.
        """
        return [(m.id, json.loads(m.value)) for m in self._world.sender.arrived.get(topic, [])]

    def _at(self, checkpoint: Checkpoint | None) -> Checkpoint | None:
        if checkpoint is not None:
            return checkpoint
        return self.checkpoints[-1] if self.checkpoints else None


Script = Sequence[Iterable[object] | Barrier | Crash | Overwrite]
"""A sequence of lists of records, barriers, crashes and new versions of tables."""


def replay(pipeline: Pipeline, script: Script, *, partitions: int = 1, parallelism: int = 1) -> Replayed:
    """Feeds records to a pipeline in memory, and makes checkpoints and crashes where the script says so.

    Args:
        pipeline: the declaration.
        script: lists of records, with `BARRIER` where a checkpoint ends, and `CRASH` before a barrier whose first
            attempt dies. A record is an instance of the source's dataclass, a dict that JSON can encode, or raw bytes,
            which become a dead letter if they cannot be decoded; None is a null value. With several inputs (sources,
            and topics of broadcast states), a record is an instance of the dataclass of one of them, or a pair (name,
            record); with a message key, it is a triple (name, record, key).
        partitions: partitions per topic; records are distributed over them in turn.
        parallelism: tasks of an operator with operator state; keys are divided over them as in Spark.

    Raises:
        UsageError: records follow the last barrier, or a crash point is never reached.
        TidemarkError: an error of a checkpoint, such as DeadLettersExceededError.
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
        raise UsageError("a CRASH follows the last BARRIER", next="end the script with BARRIER.")
    return Replayed(tuple(done), crashes, world)


def _complete(world: _World, done: list[Checkpoint]) -> int:
    """Runs until the checkpoint of this barrier is complete; returns the number of crashes on the way."""
    crashes, known = 0, len(list(world.coordinator.checkpoints()))
    while True:
        try:
            # A barrier is one checkpoint, whatever bounds one when records wait.
            whole = replace(world.pipeline, max_records=None, max_bytes=None)
            CheckpointLoop(coordinator=world.coordinator, pipeline=whole, execute=world.execute).run_once(
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
            f"the crash point {world.due[0].step}:{world.due[0].moment} was never reached",
            next="name a step of this checkpoint; an operator without records writes no run.",
        )
    done.append(next(iter(world.coordinator.checkpoints())))
    return crashes


def _position(row: Mapping[str, object]) -> tuple[str, int, int, tuple[int, ...]]:
    path = row["_path"]
    assert isinstance(path, list)  # noqa: S101  (for the type checker)
    return str(row["_topic"]), int(str(row["_partition"])), int(str(row["_offset"])), tuple(path)
