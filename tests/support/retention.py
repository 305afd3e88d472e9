"""Two pipelines for retention tests, without Spark: one in memory, one with real Delta tables and a real store."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from tests.support.disk import DiskPipeline, parse_parquet
from tests.support.memory import MemoryPipeline
from tidemark import DeltaSink, Fold, KafkaSink, KafkaSource, Pipeline, Process, state
from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.checkpoints.job import ignore_step
from tidemark.coordinator.checkpoints.loop import CheckpointLoop
from tidemark.coordinator.plans.restore_point import RestorePoint
from tidemark.coordinator.records.manifest_index import ManifestIndex
from tidemark.coordinator.records.states import Ended
from tidemark.coordinator.recovery.promotion import Promotion
from tidemark.coordinator.recovery.restore import Recovery
from tidemark.coordinator.recovery.savepoints import Savepoints
from tidemark.coordinator.recovery.timeline_end import Ending
from tidemark.coordinator.retention.deletion_plan import plan
from tidemark.coordinator.retention.key_erasure import Erased, Eraser, ErasureRequest
from tidemark.coordinator.retention.sweep import Sweeper, Swept
from tidemark.declare.retention import Retention
from tidemark.engine.write.parquet_writer import written_run
from tidemark.errors import StoreError
from tidemark.model.checkpoint.manifest import Checkpoint, Sealed
from tidemark.model.checkpoint.segments import Segment, StateHandle
from tidemark.model.checkpoint.store_objects import Closing, CompactionRecord
from tidemark.model.core.offsets import TopicPartition
from tidemark.model.retention.deletion import DeletionPlan
from tidemark.model.retention.savepoint import SavepointRecord, SavepointRequest
from tidemark.model.state.row_compaction import RowPolicy
from tidemark.ports import KeyFiles, PlanRequest, StepListener, TableFiles
from tidemark.tables.key_rewriter import ParquetKeyFiles
from tidemark.tables.local_table_files import LocalTableFiles
from tidemark.testing.twin.key_files import MemoryKeyFiles
from tidemark.testing.twin.memory import ManualClock, MemoryLog, MemoryStore, MemoryTables, SequentialIds
from tidemark.testing.twin.table_files import MemoryTableFiles

TOPIC = "payments"
ASK = PlanRequest(origin="test")


@dataclass
class MemoryCache:
    """The twin of `LocalCache`."""

    held: dict[str, bytes] = field(default_factory=dict)

    def get(self, name: str) -> bytes | None:
        return self.held.get(name)

    def put(self, name: str, body: bytes) -> None:
        self.held[name] = body


class Account(state.Keyed):
    """The state of the fold."""

    payments: int = state.count()
    total: int | None = state.sum("amount")


class Count(state.Keyed):
    """The state of the process."""

    payments: int = state.value(0)


@dataclass(frozen=True)
class Paid:
    """One record."""

    account: str
    amount: int


@dataclass(frozen=True)
class Told:
    """The output of the process: the number of payments of the account so far."""

    account: str
    so_far: int


def tell(account: str, payments: Iterator[Paid], count: Count) -> Iterator[Told]:
    """Emits a row per payment."""
    for _ in payments:
        count.payments += 1
        yield Told(account, count.payments)


FOLD = Fold("accounts", key_by="account", state=Account)
PIPELINE = Pipeline(
    name="shelf",
    source=KafkaSource(TOPIC, Paid),
    operators=[
        FOLD,
        Process("teller", key_by="account", state=Count, function=tell, emits=Told, sink=DeltaSink("told")),
    ],
    max_dead_letters=1.0,
)
ONE_FOLD = replace(PIPELINE, operators=[FOLD])
OUTBOX = replace(
    PIPELINE,
    operators=[
        *PIPELINE.operators,
        Process(
            "sender", key_by="account", state=Count, function=tell, emits=Told, sink=KafkaSink("sent", topic="out")
        ),
    ],
)
"""Every kind of table: a fold, a process with a Delta sink, one with an outbox for Kafka; all with dead letters."""


def expiring(keep_for: timedelta) -> Pipeline:
    """The pipeline whose emitted rows and dead letters expire."""
    fold, process = PIPELINE.operators
    assert isinstance(process, Process)
    operators = [fold, replace(process, sink=DeltaSink("told", keep_for=keep_for))]
    return replace(PIPELINE, operators=operators, keep_dead_letters_for=keep_for)


class RetentionPipeline:
    """The operations that both pipelines share."""

    pipeline: Pipeline
    log: MemoryLog
    clock: ManualClock
    tables: Any
    files: TableFiles
    keys: KeyFiles
    index: ManifestIndex

    @property
    def coordinator(self) -> CheckpointCoordinator:
        """A coordinator over the parts of the pipeline."""
        raise NotImplementedError

    def pay(self, *accounts: str, amount: int = 1) -> None:
        """Appends a payment per account; an empty name makes it a dead letter."""
        for account in accounts:
            body: dict[str, object] = {"account": account, "amount": amount} if account else {"amount": amount}
            self.log.append(TopicPartition(TOPIC, 0), json.dumps(body).encode(), timestamp_ms=self.clock.now_ms())

    def checkpoint(self, *accounts: str, timeline: str | None = None) -> Checkpoint:
        """Advances the clock by a second, appends payments, and completes a checkpoint."""
        self.clock.advance(1000)
        self.pay(*accounts)
        loop = CheckpointLoop(coordinator=self.coordinator, pipeline=self.pipeline, execute=self.run, timeline=timeline)
        return loop.run_once(ASK).checkpoints[-1]

    def run(self, attempt: Any, crash: StepListener = ignore_step) -> Sealed:
        """Executes an attempt up to its seal."""
        raise NotImplementedError

    def merge(self, uid: str = "accounts", timeline: str | None = None) -> bool:
        """Compacts the newest checkpoint to the deepest level. Returns False if there was nothing to compact."""
        raise NotImplementedError

    def merge_rows(self, runs: int = 2) -> bool:
        """Compacts sinks and dead letters of the live timeline's newest checkpoint. False if none was due."""
        found = next(self.coordinator.checkpoints(), None)
        return found is not None and bool(self.compact_rows(RowPolicy(runs=runs)))

    def compact_rows(self, policy: RowPolicy | None = None, timeline: str | None = None) -> list[CompactionRecord]:
        """Compacts the sinks and dead letters of the newest checkpoint that are due, for the next plan to adopt."""
        raise NotImplementedError

    @property
    def savepoints(self) -> Savepoints:
        return Savepoints(self.coordinator)

    @property
    def recovery(self) -> Recovery:
        return Recovery(coordinator=self.coordinator)

    def save(self, name: str, checkpoint: int | None = None, expires_at_ms: int | None = None) -> SavepointRecord:
        """Creates a savepoint of a checkpoint, by default the newest."""
        asked = SavepointRequest(
            name=name, owner="test", origin=name, checkpoint=checkpoint, expires_at_ms=expires_at_ms
        )
        return self.savepoints.create(asked)

    def fork(self, name: str, checkpoint: int) -> None:
        """Starts a timeline at a checkpoint; the live timeline stays live."""
        self.recovery.fork(RestorePoint(checkpoint=self.coordinator.checkpoint(checkpoint)), name)

    def restore(self, checkpoint: int) -> Closing:
        """Starts a timeline at a checkpoint, which replaces the live one."""
        done = self.recovery.restore(RestorePoint(checkpoint=self.coordinator.checkpoint(checkpoint)))
        return done.closing

    def promote(self, name: str) -> object:
        """Makes a fork the live timeline."""
        return Promotion(coordinator=self.coordinator).promote(name, discard=True)

    def end(self, name: str) -> Ended:
        """Closes a timeline that is not live."""
        return Ending(coordinator=self.coordinator).close(name)

    def sweep(self, rule: Retention | None, grace_ms: int = 0, crash: StepListener = ignore_step) -> Swept:
        """Releases checkpoints and deletes their files."""
        c = replace(self.coordinator, listener=crash)
        return Sweeper(coordinator=c, files=self.files, rule=rule, grace_ms=grace_ms).sweep()

    def erase(self, uid: str, key: str, crash: StepListener = ignore_step, *, forever: bool = False) -> Erased:
        """Erases a key."""
        c, asked = (
            replace(self.coordinator, listener=crash),
            ErasureRequest(uid=uid, key=(key,), forever=forever, owner="test"),
        )
        return Eraser(
            coordinator=c, tables=self.tables, files=self.keys, logs=self.files, request=asked, key=(key,)
        ).erase()

    def plan(self, rule: Retention | None) -> DeletionPlan:
        """The deletions that a sweep would make."""
        return plan(self.coordinator, self.files, rule)

    def rows(self, found: Checkpoint) -> dict[str, list[str]]:
        """All stored rows of a checkpoint, by uid and kind of table, sorted.

        Raises:
            StoreError: a file or a table version is missing.
        """
        handles = {f"{a.uid} {kind}": h for a in found.sealed.acks for kind, h in _handles(a)}
        return {name: sorted(map(repr, self.held(handle))) for name, handle in handles.items()}

    def held(self, handle: StateHandle) -> list[Mapping[str, Any]]:
        """The stored rows of a handle; those of a sink and dead letters with the checkpoint that wrote them."""
        found = [(at, dict(row)) for at, row in self.files_with_rows(handle)]
        if any("/state/" in s.path for s in handle):
            return [row for _, row in found]
        rows = [{"checkpoint": row.pop("_row_checkpoint", at), **row} for at, row in found]
        return [row for row in rows if row["checkpoint"] > handle.expired]

    def files_with_rows(self, handle: StateHandle) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """The rows of all files of a handle, each with the `_checkpoint` of its file."""
        raise NotImplementedError

    def named(self, found: Checkpoint) -> set[str]:
        """The data files of a checkpoint, relative to the warehouse."""
        return {p for a in found.sealed.acks for _, handle in _handles(a) for s in handle for p in self.of_version(s)}

    def of_version(self, segment: Segment) -> list[str]:
        """The data files of a segment. On disk they come from a replay of the Delta log, without product code."""
        raise NotImplementedError

    def readable(self, found: Checkpoint) -> bool:
        """Whether all rows of a checkpoint can be read."""
        try:
            self.rows(found)
        except (StoreError, OSError, DeltaError):
            return False
        return True

    def data(self) -> set[str]:
        """All data files that exist."""
        return {
            f.path for f in self.files.files(PIPELINE.name) if f.path.endswith(".parquet") and "_delta" not in f.path
        }


def _handles(ack: Any) -> list[tuple[str, StateHandle]]:
    return [("state", ack.handle), ("dead letters", ack.dead_letters), ("sink", ack.sink)]


@dataclass
class MemoryRetentionPipeline(RetentionPipeline, MemoryPipeline):
    """A pipeline whose store and tables are dicts."""

    pipeline: Pipeline = PIPELINE
    store: Any = field(default_factory=MemoryStore, kw_only=True)
    tables: MemoryTables = field(default_factory=MemoryTables, kw_only=True)
    ids: SequentialIds = field(default_factory=SequentialIds, kw_only=True)
    name = PIPELINE.name
    index: ManifestIndex = field(default_factory=lambda: ManifestIndex(MemoryCache()))

    @property
    def coordinator(self) -> CheckpointCoordinator:
        return replace(super(RetentionPipeline, self).coordinator, index=self.index)

    def __post_init__(self) -> None:
        if TOPIC not in self.log.topic_ids((TOPIC,)):
            self.log.create(TOPIC, 1)
        self.files = MemoryTableFiles(self.tables)
        self.keys = MemoryKeyFiles(self.tables)

    def run(self, attempt: Any, crash: StepListener = ignore_step) -> Sealed:
        return self.checkpoint_job(self.compute_of(self.pipeline), crash, max_dead_letters=1.0).execute(attempt)

    def merge(self, uid: str = "accounts", timeline: str | None = None) -> bool:
        """Compacts the newest checkpoint of a timeline to the deepest level."""
        newest = next(self.coordinator.checkpoints(timeline), None)
        if newest is None or not newest.handles[uid]:
            return False
        self.compact(newest, uid, newest.handles[uid])
        return True

    compact_rows = MemoryPipeline.compact_rows

    def files_with_rows(self, handle: StateHandle) -> Iterator[tuple[int, Mapping[str, Any]]]:
        self.tables.rows(handle)  # refuses a handle whose files are gone
        for s in handle:
            for f in self.tables.files_of(s):
                yield from ((f.checkpoint, row) for row in self.tables.files[f"{s.path}/{f.path}"])

    def of_version(self, segment: Segment) -> list[str]:
        return [f"{segment.path}/{f.path}" for f in self.tables.files_of(segment)]


_LISTED: dict[bytes, list[tuple[str, int]]] = {}


def _listed_by_deltalake(table: Path, version: int) -> list[tuple[str, int]]:
    """The files of a version with their checkpoints, without the product's readers.

    deltalake reads nothing but the log, and a walk reads the same logs again and again: each is opened once.
    """
    log = sha256(b"%d" % version)
    for path in sorted((table / "_delta_log").iterdir()):
        raw = path.read_bytes()
        log.update(b"%b %d " % (path.name.encode(), len(raw)))
        log.update(raw)
    found = _LISTED.get(log.digest())
    if found is None:
        opened = DeltaTable(str(table), version=version)
        actions = pa.RecordBatchReader.from_stream(opened.get_add_actions(flatten=True)).read_all().to_pylist()
        found = [(action["path"], int(action["partition._checkpoint"])) for action in actions]
        _LISTED[log.digest()] = found
    return found


class DiskRetentionPipeline(DiskPipeline, RetentionPipeline):
    """A pipeline with real Delta tables and a real store."""

    def __init__(self, root: Path, pipeline: Pipeline = PIPELINE) -> None:
        super().__init__(root=root, pipeline=pipeline, topic=TOPIC, partitions=1)
        self.files = LocalTableFiles(str(root))
        self.index = ManifestIndex(MemoryCache())
        self.keys = ParquetKeyFiles(warehouse=str(root), footers=written_run)

    @property
    def coordinator(self) -> CheckpointCoordinator:
        return replace(super().coordinator, files_exist=self._exist, name=self.pipeline.name, index=self.index)

    def checkpoint(self, *accounts: str, timeline: str | None = None) -> Checkpoint:
        return RetentionPipeline.checkpoint(self, *accounts, timeline=timeline)

    def run(self, attempt: Any, crash: StepListener | None = None) -> Sealed:
        before, self.crash = self.crash, crash or self.crash
        try:
            return self.execute(attempt)
        finally:
            self.crash = before

    def merge(self, uid: str = "accounts", timeline: str | None = None) -> bool:
        """Compacts the newest checkpoint of the live timeline to the deepest level."""
        return self.compact(uid, full=True)

    def files_with_rows(self, handle: StateHandle) -> Iterator[tuple[int, Mapping[str, Any]]]:
        for s in handle:
            for path, checkpoint in _listed_by_deltalake(self.root / s.path, s.version):
                if s.after < checkpoint <= s.through:
                    rows = parse_parquet((self.root / s.path / path).read_bytes()).to_pylist()
                    yield from ((checkpoint, row) for row in rows)

    def of_version(self, segment: Segment) -> list[str]:
        # Replays the JSON of the Delta log, without product code.
        live: dict[str, int] = {}
        folder = self.root / segment.path / "_delta_log"
        trimmed = [v for v in range(segment.version + 1) if (folder / f"{v:020d}.checkpoint.parquet").is_file()]
        for add in (
            pq.read_table(folder / f"{trimmed[-1]:020d}.checkpoint.parquet")["add"].to_pylist() if trimmed else ()
        ):
            if add is not None:
                live[add["path"]] = int(dict(add["partitionValues"])["_checkpoint"])
        for version in range(trimmed[-1] + 1 if trimmed else 0, segment.version + 1):
            log = folder / f"{version:020d}.json"
            for line in log.read_text().splitlines():
                action = json.loads(line)
                if "add" in action:
                    live[action["add"]["path"]] = int(action["add"]["partitionValues"]["_checkpoint"])
                if "remove" in action:
                    live.pop(action["remove"]["path"], None)
        return [f"{segment.path}/{path}" for path, at in live.items() if segment.after < at <= segment.through]

    def _exist(self, handle: StateHandle) -> bool:
        return all((self.root / s.path / f.path).is_file() for s in handle for f in self.tables.live_files(s))
