"""Ports: the Protocols through which the coordinator and the engine reach the outside world.

Every port has an in-memory twin (`tidemark.testing.twin.memory`) with the same contract tests as the real one.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any, Protocol

from tidemark.declare.sources import Broadcast
from tidemark.model.checkpoint.broadcast_copies import TableVersion
from tidemark.model.checkpoint.commits import Commit, CommitRequest, Committed
from tidemark.model.checkpoint.manifest import BatchFacts, PlanRequest, Sealed, UidCounts, Verdict, WrittenRun
from tidemark.model.checkpoint.messages import Message
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.checkpoint.row_tables import RowTable
from tidemark.model.checkpoint.segments import LiveFile, Segment, WrittenFile
from tidemark.model.checkpoint.store_objects import PutOutcome
from tidemark.model.core.log_records import BoundedRead, ReadBounds, Wanted
from tidemark.model.core.offsets import OffsetRange, PartitionLog, TopicPartition
from tidemark.model.retention.erasure import ErasedKey
from tidemark.model.retention.shared_state import StoredFile, TableHistory


# Bounded reads of Kafka: for people who want to know the origin of a row, and for the timestamps of a plan.
class RecordReader(Protocol):
    """Bounded reads of records. Never the records of a checkpoint: an engine reads its own."""

    def read(
        self, ranges: Mapping[TopicPartition, OffsetRange], isolation: str, bounds: ReadBounds, wanted: Wanted
    ) -> BoundedRead:
        """Reads ranges partition after partition, until one of the bounds ends it.

        Args:
            ranges: the offsets to read; those that are no longer in the log are left out.
            isolation: Kafka's isolation level; under `read_committed` records of aborted transactions are left out.
            bounds: when to stop.
            wanted: which records to return.

        Raises:
            NotFoundError: a partition does not exist.
            BrokerError: Kafka did not answer.
        """


# The ports of retention: the files of a warehouse, the only way to delete from it, and removing a key from a file.
class TableFiles(Protocol):
    """Files of tables, with their logs. Only retention uses it; paths are relative to the warehouse.

    A listing must be fresh: it contains everything written before the call (local disks and S3 do this).
    """

    def files(self, folder: str) -> Sequence[StoredFile]:
        """Yields every file in a folder, at any depth, including logs; nothing if there is no such folder.

        Raises:
            StoreError: it cannot be listed.
        """

    def history(self, table: str) -> TableHistory:
        """Returns the data files in the versions of a table; reads only commits that are new since the last call.

        The history stops before a missing or torn commit; `TableHistory.live` raises if you need a later version.

        Raises:
            StoreError: the log cannot be read: nothing may be deleted then.
        """

    def ensure_log_checkpoint(self, table: str, version: int) -> None:
        """Ensures that the log before a version is no longer needed, even after a power cut.

        Afterwards the version has a Delta log checkpoint that is complete, agrees with the commits, and is durable
        (local disk: file, hint and folder are fsynced, whichever process wrote them). No hint names one below the
        version.

        Raises:
            StoreError: it could not be written, or made durable.
        """

    def delete(self, paths: Iterable[str]) -> int:
        """Deletes files, in order, and folders that are then empty; returns how many files existed.

        Files of a log may be deleted only after `ensure_log_checkpoint`. A store that does not say whether a file
        existed counts each path once.

        Raises:
            StoreError: some may have been deleted; a repetition continues.
        """


class RowFiles(Protocol):
    """Data files of sinks and dead letters. Only compactions use it."""

    def merge(
        self, table: RowTable, files: Sequence[tuple[Segment, LiveFile]], folder: str, rows_per_file: int
    ) -> WrittenRun:
        """Writes the rows of files that have not expired, in the order of the files, each with its checkpoint. Durable.

        Args:
            table: the table; the written files have its columns and `ROW_CHECKPOINT`.
            files: the files, with the segments that name them.
            folder: the target, relative to the warehouse; no other process uses it.
            rows_per_file: the most rows of a file.

        Raises:
            StoreError: a file cannot be read, or written.
        """


class KeyFiles(Protocol):
    """Data files of tables, and the keys in them. Only erasures use it."""

    def rows_of(self, table: str, file: LiveFile, key: ErasedKey) -> int:
        """Returns the number of a key's rows in a file.

        In a file of state or of a sink these have the values of the key in its columns; a sink without these columns
        has none, and its rows must be of `key.uids`. In a file of dead letters they are the letters that belong to the
        key (`letter_keys`).

        Raises:
            StoreError: the file is missing, or cannot be read.
        """

    def without(
        self, table: str, files: Sequence[LiveFile], key: ErasedKey, folder: str
    ) -> Mapping[str, WrittenFile | None]:
        """Rewrites files without the rows of a key; all other rows stay as they are, in their order. Durable.

        Args:
            table: path relative to the warehouse.
            files: files of the table.
            key: the key whose rows are left out.
            folder: the target, relative to the warehouse; a folder of the table that no other process uses.

        Returns:
            The replacement of each file by its path; None = no row is left.

        Raises:
            StoreError: a file cannot be read, or written.
        """

    def mentions(self, table: str, file: LiveFile, columns: Mapping[str, object]) -> int:
        """Returns the number of rows with some values in a file; see `rows_of`.

        Args:
            table: path relative to the warehouse.
            file: a file of the table.
            columns: columns with their values.

        Raises:
            StoreError: the file is missing, or cannot be read.
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
    "RowFiles",
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
    """The only source of time below the entry points."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch (UTC)."""


class WriteIds(Protocol):
    """The only source of randomness below the entry points."""

    def __call__(self) -> str:
        """A fresh random id (32 hex digits)."""


class UncertainPut(Exception):  # noqa: N818
    """The reply of a put was lost: it may or may not have succeeded. The caller reads back and compares bytes."""


class CheckpointStore(Protocol):
    """Small objects in one pipeline's folder. Nothing is ever overwritten or edited.

    The coordinator uses it for every object of a pipeline.
    """

    def put_if_absent(self, key: str, body: bytes) -> PutOutcome:
        """Writes `body` durably under `key` unless the key exists; atomic among all processes.

        Raises:
            UncertainPut: the outcome is unknown.
            StoreError: certainly not written.
        """

    def get(self, key: str) -> bytes | None:
        """Returns the object's bytes, or None.

        Raises:
            StoreError: the store could not be read.
        """

    def list(self, prefix: str) -> Sequence[str]:
        """Returns the keys with a prefix (a folder, with its final `/`), ordered by name, at any depth.

        Correctness must not depend on it being fresh: a missing newest key only costs a lost put.
        """


class HeldLock(Protocol):
    """A lock that is held."""

    def renew(self, timeout: timedelta) -> None:
        """Renews how long others wait, from now on, because an attempt begins."""


class TimelineLock(Protocol):
    """Avoids wasted work among processes of one host; never needed for correctness."""

    def hold(self, timeline: str, timeout: timedelta) -> AbstractContextManager[HeldLock]:
        """Holds the timeline for a block; a holder that hangs blocks others no longer than `timeout`.

        Raises:
            BusyError: another process holds it.
        """


class Log(Protocol):
    """Kafka, as the planner sees it. It answers within its timeout or raises BrokerError; it waits for no records."""

    def partitions(self, topics: object, isolation: str) -> Mapping[TopicPartition, PartitionLog]:
        """Returns every partition of the subscription (a value of `KafkaSource.topics`), with its bounds.

        Raises:
            NotFoundError: a named topic does not exist.
            BrokerError: Kafka did not answer.
        """

    def topic_ids(self, topics: Iterable[str]) -> Mapping[str, str]:
        """Returns Kafka's topic id per topic; a topic that does not exist is left out."""

    def offsets_at(self, when_ms: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int | None]:
        """Returns the first offset with a timestamp >= the given time, per partition; None = there is none."""

    def group_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Returns the committed offsets of a consumer group, if there are any."""

    def report_group_offsets(self, group: str, ends: Mapping[TopicPartition, int]) -> None:
        """Sets the group's offsets, for lag monitoring. A failure is harmless and raises BrokerError."""


class SourceLog(Log, RecordReader, Protocol):
    """Kafka, as the coordinator sees it. It reads records only for their timestamps, if no index has the answer."""


class ForeignTables(Protocol):
    """External Delta tables that broadcast states copy; they are only read."""

    def newest(self, broadcast: Broadcast) -> TableVersion:
        """Returns the newest version of a table, and its id.

        Raises:
            NotFoundError: the table does not exist.
            StoreError: it cannot be read.
        """

    def rows(self, broadcast: Broadcast, at: TableVersion) -> Sequence[Mapping[str, Any]]:
        """Returns the rows of a version: the declared fields in stored form, timestamps in UTC.

        Raises:
            DataLostError: the version no longer exists, or the table at this path has another id.
            DeclarationError: a column is missing or has another type, a key is null or occurs twice, or a required
                field is null.
            StateOverflowError: there are more than `max_keys` rows.
            StoreError: it cannot be read.
        """


class Batch(Protocol):
    """The decoded records of one attempt: read and decoded once, used by every operator, the gate and the counts."""

    facts: BatchFacts

    @property
    def uids(self) -> Sequence[str]:
        """The operators in execution order."""

    @property
    def counts(self) -> Mapping[str, UidCounts]:
        """Counts per uid that are known: folds over a source at once; others, and joined keys, once prepared."""

    def prepare(self, uid: str) -> UidCounts:
        """Computes the work of an operator; a process runs its function. Called once for each, in order of `uids`.

        Raises:
            ProcessFunctionError, StateOverflowError, EngineError: the function raised or left too much state, or Spark
                failed.
        """

    def write_run(self, uid: str, folder: str) -> WrittenRun:
        """Folds the batch by the operator's key, or takes the output of a process, and writes the run's files.

        Args:
            uid: the operator.
            folder: `<table>/<id>.<attempt>`, relative to the warehouse; no other attempt uses it.

        Raises:
            StateOverflowError, EngineError: a key's partial result does not fit (the message names the key), or Spark
                failed.
        """

    def write_dead_letters(self, uid: str, folder: str) -> WrittenRun:
        """Writes the operator's dead letters: topic, partition, offset, timestamp, uid, reason, raw key and value."""

    def write_emitted(self, uid: str, folder: str) -> WrittenRun:
        """Writes the rows of an output that its sink lacks, in the sink's columns: fields, uid, position.

        Args:
            uid: uid of the output, as in `CheckpointPlan.sinks`.
            folder: `<table>/<id>.<attempt>`, relative to the warehouse; no other attempt uses it.
        """

    def read_emitted(self, uid: str) -> Iterable[Mapping[str, Any]]:
        """Returns the same rows, in order of their positions, for a sink without a table."""

    def count_rejected(self) -> int:
        """Returns how many records at least one operator could not apply, each counted once; call it after `prepare`.

        Raises:
            EngineError: Spark failed.
        """

    def judge(self, runs: Mapping[str, Sequence[str]]) -> Verdict:
        """Runs the pipeline's gate on the candidate.

        Args:
            runs: the files of the run per uid, relative to the warehouse; empty if nothing was written.
        """

    def refuse_recreated(self) -> None:
        """Compares topic ids again, after everything that may have read records again; called before a seal.

        Raises:
            DataLostError: a topic has a different id than in the plan.
            BrokerError: Kafka did not answer.
        """

    def close(self) -> None:
        """Releases cached data."""


class Compute(Protocol):
    """The engine: Spark, or its in-memory twin."""

    def read(self, plan: CheckpointPlan, folders: Mapping[str, str] = ...) -> Batch:
        """Reads exactly the plan's ranges.

        Args:
            plan: the plan.
            folders: per uid the folder that `Batch.write_run` will write to. An engine may write there while it reads,
                which saves a query; the files belong to no state before a commit.

        Raises:
            StateOverflowError: see `Batch.write_run`, for files written during the read.
            DataLostError: part of the ranges is no longer in the log.
            BrokerError: Kafka did not answer.
            EngineError: Spark failed.
        """


class Sender(Protocol):
    """Kafka, for an attempt that sends rows before its seal, and for the delivery of outboxes."""

    def send(self, topic: str, messages: Iterable[Message]) -> int:
        """Sends messages in order and waits until all are acknowledged; returns their number.

        Raises:
            RecordRefusedError: Kafka refuses one record, named in the error; it has acknowledged all records before it.
            BrokerError: some may have arrived; the next attempt sends all of them again, with the same ids.
            UsageError: a setting is invalid.
        """


class StateTables(Protocol):
    """Commits to Delta tables: a compare-and-set on the version just read; the same transaction removes orphans."""

    def commit(self, request: CommitRequest, fence: "Fence") -> Committed:
        """Commits, or raises.

        The order is: read the table version, then `fence.check()`, then commit on that version. After a conflict with
        another commit the fence is checked again, and if it holds, the commit is tried once more. After an unknown
        outcome the write id is read back.

        Raises:
            FencedError: the attempt was revoked.
            ConflictError: a second conflict in a row.
            StoreError: footers and reported rows differ, a parent file is missing, the schema differs, or the disk
                refused.
        """

    def live_files(self, segment: Segment) -> Sequence[WrittenFile]:
        """Returns the files of a segment: live at its version, with `_checkpoint` in its range.

        Raises:
            StoreError: the version is unreadable, or has other files than were committed: an action was lost.
        """

    def files_of(self, segment: Segment) -> Sequence[LiveFile]:
        """Returns the same files with their levels and checkpoints, for compaction. Raises like `live_files`."""

    def make_durable(self, commits: Iterable[Commit], folders: Iterable[str]) -> None:
        """Fsyncs an attempt's data files, commit files and directories (local disk), before the seal.

        This includes the commits that it was built on since its input, whichever process made them, and their Delta log
        checkpoints. It reads every commit file back and raises StoreError if write id or sha256 differ.
        """


class Fence(Protocol):
    """An attempt's right to continue."""

    def check(self) -> None:
        """Reads the attempt's outcome key.

        Raises:
            FencedError: it was revoked.
        """


class StartedCheck(Protocol):
    """A check of a fence that is under way."""

    def is_answered(self) -> bool:
        """Whether `settle` needs not wait."""

    def settle(self) -> None:
        """Waits for the answer, and raises as `Fence.check` does."""


class Attempt(Fence, Protocol):
    """One try of a plan, owned by this process."""

    def start_check(self) -> StartedCheck:
        """Starts to read the attempt's outcome key; the caller works meanwhile. A store that is near is read at once.

        Raises:
            FencedError, StoreError: as `check`, if the store is near.
        """

    @property
    def plan(self) -> CheckpointPlan:
        """The plan."""

    @property
    def number(self) -> int:
        """Number of the attempt; ascending from 1."""

    def seal(self, sealed: Sealed) -> None:
        """Puts *sealed*, which competes with *revoked* for one key.

        Raises:
            FencedError: revoked came first.
        """


class StepListener(Protocol):
    """Called before and after every step of a verb, in the process that executes it.

    A command uses one to draw its progress (`tidemark.cli.progress`), a test to inject faults
    (`coordinator.checkpoints.fault_injection`). The names of the steps are those in `docs/benchmarks/faults.csv`.
    """

    def __call__(self, step: str, moment: str) -> None:
        """Called with a step's name and `before` or `after`; an error that it raises ends the verb there."""
