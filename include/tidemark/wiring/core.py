"""What every verb needs: the parts, joined. Each heavy library is imported by the property that needs it."""

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import structlog

from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.checkpoints.reports import reported
from tidemark.coordinator.records.erasures import Erasures
from tidemark.coordinator.records.manifest_index import ManifestIndex
from tidemark.coordinator.records.refusals import Refusals
from tidemark.discovery import find_pipeline
from tidemark.errors import CheckpointExpiredError, EngineError, StoreError, TidemarkError, UsageError
from tidemark.faults import CrashAt, no_crash
from tidemark.model.canonical import sha256_of
from tidemark.model.checkpoint import Checkpoint, Sealed
from tidemark.model.names import checked_name
from tidemark.model.plan import CheckpointPlan
from tidemark.model.segments import StateHandle
from tidemark.pipeline import Pipeline
from tidemark.ports import CrashPoints, HeldLock
from tidemark.ports.caching import Cache
from tidemark.ports.records import RecordReader
from tidemark.settings import Settings
from tidemark.wiring.lazy_foreign import LazyForeignTables
from tidemark.wiring.lazy_log import LazyLog
from tidemark.wiring.lazy_sender import LazySender
from tidemark.wiring.roots import Roots, random_id

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidemark.adapters.delta_log import DeltaTables
    from tidemark.coordinator.checkpoints.attempts import OwnedAttempt
    from tidemark.engine.job import CheckpointJob
    from tidemark.engine.session import SparkSettings
    from tidemark.engine.warehouse import Warehouse

_log = structlog.get_logger("tidemark")


HOLDING = timedelta(hours=1)
"""How long other processes wait for a verb that makes no attempt, as an erasure, where it hangs."""
_CONNECT_PORT = 15002
_CONNECT_TIMEOUT = 10.0


class SystemClock:
    """The wall clock."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch (UTC)."""
        return time.time_ns() // 1_000_000


class Core(Roots):
    """Settings, clock, coordinator, tables, Spark: joined, and made only when asked for."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.clock = SystemClock()
        self._indexes: dict[str, ManifestIndex] = {}
        self._held: dict[tuple[str, str], HeldLock] = {}

    def pipeline(self, name: str) -> Pipeline:
        """The declaration of a pipeline; see `discovery.find_pipeline`."""
        return find_pipeline(name, self.settings.pipelines)

    def coordinator(self, name: str, crash: CrashPoints | None = None) -> CheckpointCoordinator:
        """The coordinator of a pipeline; connects to Kafka only when it plans."""
        return CheckpointCoordinator(
            store=self.store(name),
            log=LazyLog(self.settings),
            clock=self.clock,
            write_ids=random_id,
            crash=crash or self.crash,
            files_exist=self._files_exist,
            foreign=LazyForeignTables(),
            name=name,
            index=self._index(name),
        )

    @cached_property
    def cache(self) -> Cache:
        """What was read of files that never change, kept on this host (adr/0017). It may be deleted at any time."""
        from tidemark.adapters.local_cache import LocalCache

        warehouse = sha256_of(str(self.settings.warehouse).encode())[:16]
        return LocalCache(self.settings.home / "cache" / warehouse)

    def _index(self, name: str) -> ManifestIndex:
        return self._indexes.setdefault(name, ManifestIndex(self.cache, f"{name}.manifests.json"))

    @property
    def records(self) -> RecordReader:
        """Records of the broker that the settings name, for people who ask where a row comes from."""
        from tidemark.adapters.kafka_records import KafkaRecords

        return KafkaRecords(self.settings.kafka_address, options=self.settings.kafka_client_options)

    @cached_property
    def crash(self) -> CrashPoints:
        """Crash points: nothing, unless a test asks for one (`tidemark.faults`)."""
        at = self.settings.crash_at
        return CrashAt.parse(at) if at and os.environ.get("TIDEMARK_TEST_FAULTS") == "1" else no_crash

    @cached_property
    def tables(self) -> "DeltaTables":
        """The Delta tables below the warehouse."""
        from tidemark.adapters.delta_log import DeltaTables

        return DeltaTables(warehouse=self.root, clock=self.clock)

    @cached_property
    def spark(self) -> "SparkSettings":
        """Where Spark is, as the engine wants to know it."""
        from tidemark.engine.session import SparkSettings

        jars = self.settings.jar_folder / "spark"
        driver = {"spark.driver.memory": self.settings.spark_driver_memory}
        if self.settings.spark_java_options:
            driver["spark.driver.extraJavaOptions"] = self.settings.spark_java_options
        return SparkSettings(
            master=self.settings.spark_address,
            jars=jars,
            s3_jars=None if self.bucket is None else self.settings.jar_folder / "s3",
            conf=driver,
            session_conf=self.spark_conf,
        )

    @contextmanager
    def session(self, owner: str, attempt: int) -> Iterator["SparkSession"]:
        """A Spark session of its own for one attempt of `owner`; the one before is interrupted and released."""
        from tidemark.engine.session import end_session, open_session

        if self.spark.is_connect:
            _refuse_silent(self.spark.master)
        end_session(self.spark, owner, attempt - 1)
        session = open_session(self.spark, owner, attempt)
        try:
            yield session
        finally:
            if self.spark.is_connect:
                session.stop()

    @contextmanager
    def holding(self, name: str, timeline: str, timeout: timedelta = HOLDING) -> Iterator[None]:
        """Holds a timeline against other processes of this host; spares wasted work, no more.

        Args:
            name: of the pipeline.
            timeline: to hold.
            timeout: how long others wait for a holder that hangs; each attempt of this process begins it again.

        Raises:
            BusyError: another process holds it.
        """
        from tidemark.adapters.timeline_lock import FileTimelineLock

        folder = self.here / checked_name("pipeline", name) / "locks"
        with FileTimelineLock(folder, self.clock.now_ms).hold(timeline, timeout) as held:
            self._held[name, timeline] = held
            try:
                yield
            finally:
                del self._held[name, timeline]

    def renew(self, pipeline: Pipeline, plan: CheckpointPlan) -> None:
        """An attempt of a plan begins: other processes wait until it must have ended."""
        held = self._held.get((pipeline.name, plan.slot.timeline))
        if held is not None:
            held.renew(pipeline.checkpoint_timeout)

    def execute(self, pipeline: Pipeline, owned: "OwnedAttempt", crash: CrashPoints | None = None) -> Sealed:
        """Executes one attempt up to its seal, in a Spark session of its own."""
        # The write id, because a server may outlive a warehouse, or serve several: a closed session never opens again.
        owner = f"{pipeline.name}/{owned.plan.name}/{owned.plan.write_id}"
        with _fenced_first(owned), self.session(owner, owned.number) as spark:
            return self.job(pipeline, spark, crash or self.crash).execute(owned)

    def job(self, pipeline: Pipeline, spark: "SparkSession", crash: CrashPoints) -> "CheckpointJob":
        """The steps of an attempt, over Spark, Kafka and the Delta tables."""
        from tidemark.engine.compute import SparkCompute
        from tidemark.engine.job import CheckpointJob
        from tidemark.engine.source import KafkaOptions

        compute = SparkCompute(
            pipeline=pipeline,
            warehouse=self.state_of(spark),
            kafka=KafkaOptions(bootstrap=self.settings.kafka_address, client=self.settings.kafka_java_options),
            log=LazyLog(self.settings),
            foreign=LazyForeignTables(),
            blocked=Erasures(self.coordinator(pipeline.name).objects).blocked,
        )
        return CheckpointJob(
            compute=compute,
            tables=self.tables,
            clock=self.clock,
            write_ids=random_id,
            crash=crash,
            max_dead_letters=pipeline.max_dead_letters,
            sender=LazySender(self.settings),
            skipped=Refusals(self.coordinator(pipeline.name).objects).skipped_ids,
        )

    def state_of(self, spark: "SparkSession") -> "Warehouse":
        """The warehouse as a Spark session sees it."""
        from tidemark.adapters.located import spark_root
        from tidemark.engine.warehouse import Warehouse

        return Warehouse(session=spark, root=spark_root(self.root), files_of=self.tables.files_of, arrow=self.arrow)

    def report_offsets(self, pipeline: Pipeline, checkpoint: Checkpoint) -> None:
        """Sets the consumer groups' offsets, where sources name any; monitoring only, so no failure of it is raised."""
        plan = checkpoint.plan
        for name, source in pipeline.inputs.items():
            if source.group is None:
                continue
            ends = {tp: end for tp, end in plan.ranges.ends.items() if tp.topic in plan.sources.get(name, ())}
            failure = None
            try:
                LazyLog(self.settings).report_group_offsets(source.group, ends)
            except TidemarkError as error:  # no answer, a topic that is gone since the read, or an option that is wrong
                failure = error.what
                _log.warning("group_offsets_not_reported", pipeline=pipeline.name, input=name, why=failure)
            try:
                reported(self.coordinator(pipeline.name), checkpoint, (name, source.group), failure)
            except StoreError as error:
                _log.warning("report_not_kept", pipeline=pipeline.name, input=name, why=error.what)

    def known(self, name: str) -> str:
        """`name`, if the warehouse knows it or a file declares it.

        Raises:
            NotFoundError: neither.
        """
        if not self.has_begun(name):
            self.pipeline(name)
        return name

    def _files_exist(self, handle: StateHandle) -> bool:
        from tidemark.adapters.located import located

        return all(
            located(self.root, segment.path, file.path).is_file()
            for segment in handle
            for file in self.tables.live_files(segment)
        )


def both(first: CrashPoints, second: CrashPoints) -> CrashPoints:
    """Tells two listeners of every step."""

    def tell(step: str, moment: str) -> None:
        first(step, moment)
        second(step, moment)

    return tell


@contextmanager
def _fenced_first(owned: "OwnedAttempt") -> Iterator[None]:
    """A later attempt releases this one's session: Spark complains of that first, but what happened is the fence.

    Raises:
        FencedError: Spark failed, and the attempt was revoked.
    """
    try:
        yield
    except EngineError:
        with suppress(CheckpointExpiredError):
            owned.check()
        raise


def _refuse_silent(address: str) -> None:
    """Raises where nobody listens: the Connect client would try again for ten minutes before it said so.

    Raises:
        EngineError: naming the address.
    """
    at = urlsplit(address)
    try:
        port = at.port or _CONNECT_PORT
    except ValueError as error:
        raise UsageError(
            f"TIDEMARK_SPARK is no address: {address}",
            next="write it as in sc://spark:15002, with options behind a slash: sc://spark:443/;use_ssl=true",
        ) from error
    try:
        socket.create_connection((at.hostname or "localhost", port), _CONNECT_TIMEOUT).close()
    except OSError as error:
        raise EngineError(
            f"Spark does not answer at {at.hostname}:{port}: {error.strerror or error}",
            safe="every completed checkpoint is intact; nothing was published.",
            next="tidemark up --only spark    (or correct TIDEMARK_SPARK), then run the pipeline again.",
        ) from error
