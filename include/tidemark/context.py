"""The composition root: `Context` creates each part, and imports its library, only when that is first used."""

import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import timedelta
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING

from tidemark.coordinator.records.manifest_index import ManifestIndex
from tidemark.coordinator.records.refusal_records import Refusals
from tidemark.coordinator.records.timelines import Erasures
from tidemark.declare.pipeline import Pipeline
from tidemark.environment import (
    HostLocks,
    Observers,
    SystemClock,
    WarehouseLocation,
    driver_conf,
    find_pipeline,
    lazy_proxy,
    random_id,
)
from tidemark.errors import CheckpointExpiredError, EngineError
from tidemark.model.checkpoint.manifest import Sealed
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.checkpoint.segments import StateHandle
from tidemark.model.core.canonical import sha256_of
from tidemark.model.core.names import checked_name
from tidemark.ports import CheckpointStore, Clock, ForeignTables, Sender, SourceLog, StepListener, TableFiles
from tidemark.ports.caching import Cache
from tidemark.settings import Settings, load_settings
from tidemark.storage.local_store import LocalStore, join_path, spark_root

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidemark.coordinator.checkpoints.attempts import OwnedAttempt
    from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
    from tidemark.coordinator.checkpoints.job import CheckpointJob
    from tidemark.coordinator.plans.redrives import StoredPlace
    from tidemark.engine.session.session import SparkSettings
    from tidemark.engine.state.state_files import SparkWarehouse
    from tidemark.tables.delta_tables import DeltaTables
    from tidemark.tables.integrity_check import TableChecks

LOCK_TIMEOUT = timedelta(hours=1)
"""How long other processes wait for a hung command that starts no attempt, such as an erasure."""


class Context:
    """The parts that every operation needs, for the warehouse, Kafka and Spark given by `settings`."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.clock: Clock = SystemClock()
        self.warehouse = WarehouseLocation(settings)
        self.observers = Observers(settings)
        self._indexes: dict[str, ManifestIndex] = {}
        self._locks = HostLocks(self.warehouse, lambda: self.clock.now_ms())

    def pipeline(self, name: str) -> Pipeline:
        """Returns the declaration of a pipeline; see `environment.find_pipeline`."""
        return find_pipeline(name, self.settings.pipelines)

    def require_pipeline(self, name: str) -> str:
        """Returns `name` if the warehouse or a pipeline file contains it.

        Raises:
            NotFoundError: neither contains it.
        """
        if not self.warehouse.has_begun(name):
            self.pipeline(name)
        return name

    def store(self, name: str) -> CheckpointStore:
        """Returns the object store of a pipeline."""
        if self.warehouse.bucket is None:
            return LocalStore(self.warehouse.local_folder / checked_name("pipeline", name))
        from tidemark.storage.s3_store import store_of

        return store_of(self.warehouse.bucket, checked_name("pipeline", name))

    def coordinator(self, name: str, listener: StepListener | None = None) -> "CheckpointCoordinator":
        """Returns the coordinator of a pipeline; it connects to Kafka only when it plans."""
        from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator

        return CheckpointCoordinator(
            store=self.store(name),
            log=self.log,
            clock=self.clock,
            write_ids=random_id,
            listener=listener or self.listener,
            files_exist=self.files_exist,
            find_letters=self._find_letters,
            foreign=self.foreign_tables,
            name=name,
            index=self._indexes.setdefault(name, ManifestIndex(self.cache, f"{name}.manifests.json")),
        )

    @cached_property
    def listener(self) -> StepListener:
        """Called at every step of this process. It does nothing unless a test injects a fault."""
        from tidemark.coordinator.checkpoints.fault_injection import CrashAt
        from tidemark.coordinator.checkpoints.job import ignore_step

        at = self.settings.crash_at
        return CrashAt.parse(at) if at and os.environ.get("TIDEMARK_TEST_FAULTS") == "1" else ignore_step

    @cached_property
    def cache(self) -> Cache:
        """Caches the contents of immutable files on this host (adr/0017). You may delete it at any time."""
        from tidemark.storage.object_cache import LocalCache

        return LocalCache(self.settings.home / "cache" / sha256_of(str(self.settings.warehouse).encode())[:16])

    def _find_letters(self, handle: StateHandle, places: Collection[tuple[str, int, int]]) -> "Iterable[StoredPlace]":
        from tidemark.tables.row_files import find_letters

        return find_letters(self.warehouse.root, handle, places)

    @cached_property
    def tables(self) -> "DeltaTables":
        """The Delta tables below the warehouse."""
        from tidemark.tables.delta_tables import DeltaTables

        return DeltaTables(warehouse=self.warehouse.root, clock=self.clock)

    @cached_property
    def table_files(self) -> TableFiles:
        """The files below the warehouse."""
        if self.warehouse.bucket is not None:
            from tidemark.tables.s3_table_files import S3TableFiles

            return S3TableFiles(self.warehouse.bucket, self.cache)
        from tidemark.tables.local_table_files import LocalTableFiles

        return LocalTableFiles(str(self.warehouse.local_folder), self.cache)

    def files_exist(self, handle: StateHandle) -> bool:
        """Whether every file of a handle exists."""
        places = ((segment.path, file.path) for segment in handle for file in self.tables.live_files(segment))
        return all(join_path(self.warehouse.root, *place).is_file() for place in places)

    def table_checks(self, *, content: bool = False) -> "TableChecks":
        """Returns the integrity check of segments: of file sizes, or with `content` of every byte."""
        from tidemark.tables.integrity_check import TableChecks

        return TableChecks(self.warehouse.root, content=content)

    @property
    def foreign_tables(self) -> ForeignTables:
        """The tables that broadcast states copy; deltalake is imported when the first one is read."""

        def make() -> ForeignTables:
            from tidemark.tables.foreign_tables import DeltaForeignTables

            return DeltaForeignTables()

        return lazy_proxy(make)

    @property
    def log(self) -> SourceLog:
        """The topics and their records. Connects on first use; not cached, because an embedded broker may move."""

        def make() -> SourceLog:
            from tidemark.kafka.record_reader import KafkaRecords

            return KafkaRecords(self.settings.kafka_address, options=self.settings.kafka_client_options)

        return lazy_proxy(make)

    @property
    def sender(self) -> Sender:
        """Sends what attempts emit directly; an attempt that emits nothing opens no producer."""

        def make() -> Sender:
            from tidemark.kafka.producer import KafkaSender

            return KafkaSender(self.settings.kafka_address, self.settings.kafka_client_options)

        return lazy_proxy(make)

    @cached_property
    def outbox(self) -> Sender:
        """Sends the rows in the outboxes of completed checkpoints."""
        from tidemark.kafka.producer import KafkaOutbox

        return KafkaOutbox(self.settings.kafka_address, self.settings.kafka_client_options)

    @cached_property
    def spark(self) -> "SparkSettings":
        """The Spark settings of the engine."""
        from tidemark.engine.session.session import SparkSettings

        return SparkSettings(
            master=self.settings.spark_address,
            jars=self.settings.jar_folder / "spark",
            s3_jars=None if self.warehouse.bucket is None else self.settings.jar_folder / "s3",
            parallelism=self.settings.spark_parallelism,
            conf=driver_conf(self.settings),
            session_conf=self.warehouse.spark_conf,
        )

    @contextmanager
    def session(self, owner: str, attempt: int, rows: int | None = None) -> Iterator["SparkSession"]:
        """Opens a Spark session for one attempt of `owner`; interrupts and releases that of the previous attempt.

        `rows` is an upper bound of the rows that it reads, which determines its tasks; None = unknown.
        """
        from tidemark.engine.session.reachability import refuse_unreachable
        from tidemark.engine.session.session import end_session, open_session

        if self.spark.is_connect:
            refuse_unreachable(self.spark.master)
        end_session(self.spark, owner, attempt - 1)
        session = open_session(self.spark, owner, attempt, rows)
        try:
            yield session
        finally:
            if self.spark.is_connect:
                session.stop()

    def warehouse_of(self, spark: "SparkSession") -> "SparkWarehouse":
        """Returns the warehouse as a Spark session sees it; workers may have no credentials for a bucket."""
        from tidemark.engine.state.state_files import SparkWarehouse
        from tidemark.readers.candidate_state import CandidateState
        from tidemark.storage.parquet_folder import write_table

        at, own = self.warehouse, CandidateState(warehouse=self.warehouse.root)
        of, to = own.key_reader if at.bucket is None else None, partial(write_table, at.root)
        root, files = spark_root(at.root), self.tables.files_of
        return SparkWarehouse(
            session=spark, root=root, files_of=files, arrow=at.arrow, worker_reader=of, write=to, candidate=own
        )

    def job(self, pipeline: Pipeline, spark: "SparkSession", listener: StepListener) -> "CheckpointJob":
        """Returns the steps of an attempt, over Spark, Kafka and the Delta tables."""
        from tidemark.coordinator.checkpoints.job import CheckpointJob
        from tidemark.coordinator.records.schema_book import StoredBook, StoredSchemas
        from tidemark.engine.compute import SparkCompute
        from tidemark.engine.read.source import KafkaOptions
        from tidemark.environment import open_registry

        objects = self.coordinator(pipeline.name).objects
        return CheckpointJob(
            compute=SparkCompute(
                pipeline=pipeline,
                warehouse=self.warehouse_of(spark),
                kafka=KafkaOptions(bootstrap=self.settings.kafka_address, client=self.settings.kafka_java_options),
                log=self.log,
                foreign=self.foreign_tables,
                blocked=Erasures(objects).blocked_keys,
                open_book=cache(lambda: StoredBook(StoredSchemas(objects), open_registry(self.settings), listener)),
            ),
            tables=self.tables,
            clock=self.clock,
            write_ids=random_id,
            listener=listener,
            max_dead_letters=pipeline.max_dead_letters,
            sender=self.sender,
            skipped=Refusals(objects).skipped_ids,
        )

    def execute(self, pipeline: Pipeline, owned: "OwnedAttempt", listener: StepListener | None = None) -> Sealed:
        """Executes one attempt up to its seal in a new Spark session."""
        # With the write id, because a server may serve several warehouses and a closed session cannot be opened again.
        owner = f"{pipeline.name}/{owned.plan.name}/{owned.plan.write_id}"
        try:
            with self.session(owner, owned.number, owned.plan.rows_at_most) as spark:
                return self.job(pipeline, spark, listener or self.listener).execute(owned)
        except EngineError:
            # A later attempt has released this session. Spark fails first, but the cause is the fence.
            with suppress(CheckpointExpiredError):
                owned.check()
            raise

    def lock(self, name: str, timeline: str, timeout: timedelta = LOCK_TIMEOUT) -> AbstractContextManager[None]:
        """Locks a timeline on this host until `timeout`; each attempt restarts it. Correctness does not depend on it.

        Raises:
            BusyError: another process holds it.
        """
        return self._locks.hold(checked_name("pipeline", name), timeline, timeout)

    def renew_lock(self, pipeline: Pipeline, plan: CheckpointPlan) -> None:
        """Restarts the timeout of the lock when an attempt begins."""
        self._locks.renew(pipeline.name, plan.slot.timeline, pipeline.checkpoint_timeout)


def open_context(settings: Settings | None = None) -> Context:
    """Returns the context of this process. This is cheap, because parts are created on first use.

    Raises:
        UsageError: a setting is unknown or invalid.
    """
    return Context(settings or load_settings())
