"""Ports: what the coordinator and the engine need of the outside world, as Protocols.

Every port has an in-memory twin (`tidemark.testing.twin.memory`), held to the same contract tests as the real one.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any, Protocol

from tidemark.declare.sources import Broadcast
from tidemark.model.checkpoint.broadcast_copies import TableVersion
from tidemark.model.checkpoint.manifest import BatchFacts, Commit, Sealed, Verdict
from tidemark.model.checkpoint.messages import Message
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.checkpoint.segments import Segment
from tidemark.model.checkpoint.store_objects import PutOutcome
from tidemark.model.checkpoint.table_writes import (
    CommitRequest,
    Committed,
    LiveFile,
    PlanRequest,
    UidCounts,
    WrittenFile,
    WrittenRun,
)
from tidemark.model.core.log_records import BoundedRead, ReadBounds, Wanted
from tidemark.model.core.offsets import OffsetRange, PartitionLog, TopicPartition
from tidemark.model.retention.erasure import ErasedKey
from tidemark.model.retention.shared_state import StoredFile, TableHistory


# Records of Kafka within bounds: for people who ask where a row comes from, and for the timestamps of a plan.
class RecordReader(Protocol):
    """Records of Kafka within bounds. Never the records of a checkpoint: an engine reads its own."""

    def read(
        self, ranges: Mapping[TopicPartition, OffsetRange], isolation: str, bounds: ReadBounds, wanted: Wanted
    ) -> BoundedRead:
        """Reads ranges partition after partition, until one of the bounds ends it.

        Args:
            ranges: what the log still has of them is read; what it lacks is left out.
            isolation: Kafka's; under `read_committed` records of aborted transactions are left out.
            bounds: when to stop.
            wanted: which records are answered.

        Raises:
            NotFoundError: a partition does not exist.
            BrokerError: no answer.
        """


# The ports of retention: what lies below a warehouse, the only way to delete of it, and how a key leaves a file.
class TableFiles(Protocol):
    """Files of tables, with their logs. Called by retention only; paths are relative to the warehouse.

    A listing must be fresh: what was written before it was asked for is in it (local disks and S3 are so).
    """

    def files(self, folder: str) -> Sequence[StoredFile]:
        """Every file below a folder, at any depth, logs included; none where there is no such folder.

        Raises:
            StoreError: it cannot be listed.
        """

    def history(self, table: str) -> TableHistory:
        """Which data files the versions of a table name; reads what was committed since it was asked last.

        It ends before a hole or a torn commit: whoever needs a version above is told so by `TableHistory.live`.

        Raises:
            StoreError: the log cannot be read: nothing may be deleted then.
        """

    def ensure_log_checkpoint(self, table: str, version: int) -> None:
        """Sees to it that the log before a version is no longer needed, not even after a power cut.

        Afterwards the version has a Delta log checkpoint that is whole, says what the commits say, and is durable
        (local disk: file, hint and folder are fsynced, whoever made them). No hint names one below the version.

        Raises:
            StoreError: it could not be written, or made durable.
        """

    def delete(self, paths: Iterable[str]) -> int:
        """Deletes files, in order, and folders that are empty then; returns how many files were there.

        Of a log only behind `ensure_log_checkpoint`.

        A store that does not tell whether a file was there counts each path once.

        Raises:
            StoreError: some may have been deleted; a repetition goes on.
        """


class KeyFiles(Protocol):
    """Data files of state tables, and the keys in them. Called by erasures only."""

    def rows_of(self, table: str, file: LiveFile, key: ErasedKey) -> int:
        """How many rows of a file are of a key.

        Raises:
            StoreError: the file is gone, or cannot be read.
        """

    def without(
        self, table: str, files: Sequence[LiveFile], key: ErasedKey, folder: str
    ) -> Mapping[str, WrittenFile | None]:
        """Writes files again without the rows of a key; all other rows as they are, in their order. Durable.

        Args:
            table: relative to the warehouse.
            files: of the table.
            key: which rows to leave out.
            folder: where to, relative to the warehouse; a folder of the table that is nobody else's.

        Returns:
            By path of each file what stands in its place; None = no row is left.

        Raises:
            StoreError: a file cannot be read, or written.
        """

    def mentions(self, table: str, file: LiveFile, columns: Mapping[str, object]) -> int:
        """How many rows of a file of dead letters, or of a sink, hold a key.

        Args:
            table: relative to the warehouse.
            file: of the table.
            columns: key columns with their values. Rows are compared in these columns where the file has all of them;
                else, where it has raw keys and values, their texts are searched for all values.

        Raises:
            StoreError: the file is gone, or cannot be read.
        """


__all__ = [
    "Attempt",
    "Batch",
    "CheckpointStore",
    "Clock",
    "CommitRequest",
    "Committed",
    "Compute",
    "StepListener",
    "Fence",
    "ForeignTables",
    "HeldLock",
    "KeyFiles",
    "LiveFile",
    "Log",
    "PartitionLog",
    "PlanRequest",
    "PutOutcome",
    "Sender",
    "SourceLog",
    "StateTables",
    "TableFiles",
    "TimelineLock",
    "UidCounts",
    "UncertainPut",
    "WriteIds",
    "WrittenFile",
    "WrittenRun",
]


class Clock(Protocol):
    """The only source of time below the entry floor."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch (UTC)."""


class WriteIds(Protocol):
    """The only source of randomness below the entry floor."""

    def __call__(self) -> str:
        """A fresh random id (32 hex digits)."""


class UncertainPut(Exception):  # noqa: N818
    """The reply of a put was lost: it may or may not have happened. The caller reads back and compares bytes."""


class CheckpointStore(Protocol):
    """Small objects below one pipeline's folder. Nothing is ever overwritten or edited.

    Called by the coordinator, for every object of design section 6.
    """

    def put_if_absent(self, key: str, body: bytes) -> PutOutcome:
        """Writes `body` durably under `key` unless the key exists; atomic among all processes.

        Raises:
            UncertainPut: the outcome is unknown.
            StoreError: certainly not written.
        """

    def get(self, key: str) -> bytes | None:
        """The object's bytes, or None.

        Raises:
            StoreError: the store could not be read.
        """

    def list(self, prefix: str) -> Sequence[str]:
        """Keys below a prefix (a folder, with its final `/`), in order of names, at any depth.

        Correctness must not rest on it being fresh: a missing newest key costs a lost put, no more.
        """


class HeldLock(Protocol):
    """A lock that is held."""

    def renew(self, timeout: timedelta) -> None:
        """Says anew how long others wait from now on: an attempt begins."""


class TimelineLock(Protocol):
    """Spares wasted work among processes of one host; never needed for correctness."""

    def hold(self, timeline: str, timeout: timedelta) -> AbstractContextManager[HeldLock]:
        """Holds the timeline for the duration of a block; a holder that hangs blocks others for `timeout`, no longer.

        Raises:
            BusyError: another process holds it.
        """


class Log(Protocol):
    """Kafka, as the planner sees it. Answers within its timeout or raises BrokerError; never waits for records."""

    def partitions(self, topics: object, isolation: str) -> Mapping[TopicPartition, PartitionLog]:
        """Every partition of the subscription (a value of `KafkaSource.topics`), with its bounds.

        Raises:
            NotFoundError: a named topic does not exist.
            BrokerError: no answer.
        """

    def topic_ids(self, topics: Iterable[str]) -> Mapping[str, str]:
        """Kafka's topic id per topic; a topic that does not exist is left out."""

    def offsets_at(self, when_ms: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int | None]:
        """First offset whose record's timestamp is >= the given time, per partition; None = no such record."""

    def group_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Committed offsets of a consumer group, where there are any."""

    def report_group_offsets(self, group: str, ends: Mapping[TopicPartition, int]) -> None:
        """Sets the group's offsets, for lag monitoring (J10). Failure is harmless and raises BrokerError."""


class SourceLog(Log, RecordReader, Protocol):
    """Kafka, as the coordinator sees it. It reads records for their timestamps only, where no index has the answer."""


class ForeignTables(Protocol):
    """Delta tables of somebody else's, which broadcast states copy; they are only read."""

    def newest(self, broadcast: Broadcast) -> TableVersion:
        """The newest version of a table, and its id.

        Raises:
            NotFoundError: no such table.
            StoreError: it cannot be read.
        """

    def rows(self, broadcast: Broadcast, at: TableVersion) -> Sequence[Mapping[str, Any]]:
        """The rows of a version: the declared fields, in the stored form of their types, timestamps in UTC.

        Raises:
            DataLostError: the version is gone, or the table at this place has another id.
            DeclarationError: a column is missing or of another type; a key is null or there twice; a null in a field
                that may not be null.
            StateOverflowError: more than `max_keys` rows.
            StoreError: it cannot be read.
        """


class Batch(Protocol):
    """The decoded records of one attempt: read and decoded once, used by every operator, the gate and the counts."""

    facts: BatchFacts

    @property
    def uids(self) -> Sequence[str]:
        """Operators in the order in which they are executed."""

    @property
    def counts(self) -> Mapping[str, UidCounts]:
        """Per uid, as far as known: of folds over a source at once; of others, and of joined keys, once prepared."""

    def prepare(self, uid: str) -> UidCounts:
        """Finds out what an operator has to do; a process runs its function. Called once each, in order of `uids`.

        Raises:
            ProcessFunctionError, StateOverflowError, EngineError: the function raised, or left too much; Spark failed.
        """

    def write_run(self, uid: str, folder: str) -> WrittenRun:
        """Folds the batch by the operator's key and writes the run's files; of a process what its function has left.

        Args:
            uid: the operator.
            folder: `<table>/<id>.<attempt>`, relative to the warehouse; no other attempt uses it.

        Raises:
            StateOverflowError, EngineError: a key's partial does not fit, and the message names the key; Spark failed.
        """

    def write_dead_letters(self, uid: str, folder: str) -> WrittenRun:
        """Writes the operator's dead letters: topic, partition, offset, timestamp, uid, reason, raw key and value."""

    def write_emitted(self, uid: str, folder: str) -> WrittenRun:
        """Writes what a process emitted and its sink lacks, in the sink's columns: fields, uid, position (J16)."""

    def emitted(self, uid: str) -> Iterable[Mapping[str, Any]]:
        """The same rows, in order of their positions, for a sink that keeps none (D9)."""

    def rejected(self) -> int:
        """How many records at least one operator could not apply, each counted once; asked when all are prepared.

        Raises:
            EngineError: Spark failed.
        """

    def judge(self, runs: Mapping[str, Sequence[str]]) -> Verdict:
        """Runs the pipeline's gate on the candidate.

        Args:
            runs: per uid the files of the run, relative to the warehouse; empty where nothing was written.
        """

    def refuse_recreated(self) -> None:
        """Compares the ids of the topics once more, behind all that may have read records again; asked before a seal.

        Raises:
            DataLostError: a topic has another id than the plan.
            BrokerError: no answer.
        """

    def close(self) -> None:
        """Releases what was cached."""


class Compute(Protocol):
    """The engine: Spark, or its in-memory twin."""

    def read(self, plan: CheckpointPlan, folders: Mapping[str, str] = ...) -> Batch:
        """Reads exactly the plan's ranges.

        Args:
            plan: the plan.
            folders: per uid the folder that `Batch.write_run` will be asked to write to. An engine may write there
                while it reads, which costs a query less; what it has written is no part of any state before a commit.

        Raises:
            StateOverflowError: as `Batch.write_run`, of what was written while reading.
            DataLostError: part of the ranges is not in the log any more.
            BrokerError: Kafka did not answer.
            EngineError: Spark failed.
        """


class Sender(Protocol):
    """Kafka, as seen by an attempt that sends what it emitted before its seal (D9), and by what empties outboxes."""

    def send(self, topic: str, messages: Iterable[Message]) -> int:
        """Sends messages in order and waits until all are acknowledged; returns how many.

        Raises:
            RecordRefusedError: Kafka refuses one record, which is named; all ahead of it were acknowledged.
            BrokerError: some may have arrived; the next attempt sends all of them again, with the same ids.
            UsageError: a setting does not fit.
        """


class StateTables(Protocol):
    """Commits to Delta tables: a compare-and-set on the version just read, orphans removed in the same transaction."""

    def commit(self, request: CommitRequest, fence: "Fence") -> Committed:
        """Commits, or raises.

        Order: read the table version, then `fence.check()`, then commit on that version. A conflict means that
        somebody else committed: the fence is asked again, and if it holds the commit is tried once more. An unknown
        outcome is read back by write id.

        Raises:
            FencedError: the attempt was revoked.
            ConflictError: a second conflict in a row.
            StoreError: footers and reported rows differ, a parent file is missing, the schema differs, or the disk.
        """

    def live_files(self, segment: Segment) -> Sequence[WrittenFile]:
        """Files of a segment: live at its version, `_checkpoint` in its range.

        Raises:
            StoreError: the version is not readable, or has other files than were committed: an action was lost.
        """

    def files_of(self, segment: Segment) -> Sequence[LiveFile]:
        """The same files with their levels and checkpoints; what a compaction chooses from. Raises as `live_files`."""

    def make_durable(self, commits: Iterable[Commit], folders: Iterable[str]) -> None:
        """Fsyncs an attempt's data files, commit files and directories (local disk), before the seal.

        With a commit go those that it was built on since its input, whoever made them, and their Delta log checkpoints.
        Reads every commit file back and raises StoreError where write id or sha256 differ.
        """


class Fence(Protocol):
    """An attempt's right to go on."""

    def check(self) -> None:
        """Reads the attempt's outcome key.

        Raises:
            FencedError: it was revoked.
        """


class Attempt(Fence, Protocol):
    """One try of a plan, owned by this process."""

    @property
    def plan(self) -> CheckpointPlan:
        """What is tried."""

    @property
    def number(self) -> int:
        """Which try; ascending from 1."""

    def seal(self, sealed: Sealed) -> None:
        """Puts *sealed*, which competes with *revoked* for one key.

        Raises:
            FencedError: revoked came first.
        """


class StepListener(Protocol):
    """Called before and after every step of a verb, in the process that takes it.

    A command draws its progress with one (`tidemark.cli.progress`), a test injects faults with one
    (`coordinator.checkpoints.fault_injection`). The names of the steps are those of `docs/benchmarks/faults.csv`.
    """

    def __call__(self, step: str, moment: str) -> None:
        """Called with a step's name and `before` or `after`; an error that it raises ends the verb there."""
