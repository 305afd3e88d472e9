"""The Spark session factory: a Connect session whose id is derived from (plan, attempt), or a classic driver.

Killing a client does not stop its query on a Connect server. So the next attempt derives the session id of the previous
one, and interrupts and releases that session. A released id stays closed on the server: a zombie client gets no more
results from it.
"""

import atexit
import hashlib
import os
import shutil
import sys
import tempfile
import time
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession
from pyspark.sql.connect.client import DefaultChannelBuilder
from pyspark.sql.connect.client.retries import DefaultPolicy, RetryPolicy, RetryPolicyState, extract_retry_info

from tidemark.engine.session.class_archive import is_own_process, jar_conf
from tidemark.engine.session.installation import PACKAGE, WORKER_DAEMON, package_path
from tidemark.engine.session.parallelism import server_parallelism, task_conf
from tidemark.engine.session.spark_errors import translate_spark_errors
from tidemark.model.core.connect_address import add_parameter, parameters_of

# How long a Connect client waits for a server that does not answer: one limit for all calls of a session.
#
# Spark's own policies count per call. If the server is gone, each call that cleans up waits again, and so do the
# threads that release results, for which the process waits when it exits.
PATIENCE = 9.0
"""Seconds from the first failure of a call until its server counts as gone: longer than a short network outage, and
shorter than a person waits before starting another attempt, which repairs a checkpoint."""
_FIRST_PAUSE_MS, _LONGEST_PAUSE_MS = 100, 1_000
CHANNEL = [
    ("grpc.initial_reconnect_backoff_ms", _FIRST_PAUSE_MS),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.min_reconnect_backoff_ms", 3_000),
    ("grpc.keepalive_time_ms", 5_000),
    ("grpc.keepalive_timeout_ms", 4_000),
    ("grpc.http2.ping_timeout_ms", 4_000),
    ("grpc.http2.max_pings_without_data", 0),
]
"""Options of a channel. gRPC's own pauses grow to two minutes, during which each call fails without trying. A server
that vanishes closes no connection, so while a call runs, the client asks for a sign of life."""


class Patience(DefaultPolicy):
    """Retries while the server does not answer, up to the limit; then no call of the session waits any more.

    A server that itself says when to retry is alive: that is for another policy.
    """

    def __init__(self, seconds: float = PATIENCE) -> None:
        super().__init__(
            max_retries=None,
            initial_backoff=_FIRST_PAUSE_MS,
            backoff_multiplier=2.0,
            max_backoff=_LONGEST_PAUSE_MS,
        )
        self.seconds = seconds
        self.is_spent = False

    def can_retry(self, e: BaseException) -> bool:
        """See `RetryPolicy`."""
        return super().can_retry(e) and extract_retry_info(e) is None

    def to_state(self) -> RetryPolicyState:
        """See `RetryPolicy`: what one call has left."""
        return _Call(self)


class _Call(RetryPolicyState):
    def __init__(self, patience: Patience) -> None:
        super().__init__(patience)
        self._patience = patience
        self._until: float | None = None

    def next_attempt(self, exception: BaseException | None = None) -> int | None:
        """Returns milliseconds to wait before the next try; None = the server is gone."""
        now = time.monotonic()
        if self._until is None:
            self._until = now + self._patience.seconds
        wait = super().next_attempt(exception)
        if wait is None or now + wait / 1000 > self._until:
            self._patience.is_spent = True
        return None if self._patience.is_spent else wait


def policies() -> list[RetryPolicy]:
    """Returns the retry policies of one session."""
    return [
        Patience(),
        DefaultPolicy(max_retries=10, initial_backoff=_FIRST_PAUSE_MS, backoff_multiplier=2.0, max_backoff=5_000),
    ]


_FIRST_DAY = (1980, 1, 1, 0, 0, 0)


@cache
def package_zip() -> Path:
    """Returns a zip of the package's Python files, from which workers import; the same files give the same bytes.

    It is in a temporary folder of this user and is deleted when this process, which serves it to executors, exits.
    """
    files = {path.relative_to(PACKAGE.parent).as_posix(): path.read_bytes() for path in sorted(PACKAGE.rglob("*.py"))}
    digest = sha256()
    for name, text in files.items():
        digest.update(f"{name} {len(text)}\n".encode() + text)
    folder = Path(tempfile.mkdtemp(prefix="tidemark-package-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    made = folder / f"tidemark-{digest.hexdigest()[:16]}.zip"
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as whole:
        for name, text in files.items():
            whole.writestr(zipfile.ZipInfo(name, _FIRST_DAY), text)
    return made


_USER = "tidemark"
_SPARK_HOME = Path(pyspark.__file__).parent
_PYTHON_PATH = "spark.executorEnv.PYTHONPATH"
_DELTA = "spark.databricks.delta"
_OPENED: list[Any] = []
"""Every client session of this process, for ever, so that none is garbage-collected. The finalizer closes the channel
and thread pool on whatever thread it runs, and in the middle of a call it blocks for ever (SPARK-55020,
SPARK-55406)."""
_TEXT = r'"(?:[^"\\]|\\.)*"'
_ESCAPED = r'(?:[^"\\]|\\.)*'
REDACTED = "|".join(
    (
        f"(?s)LoginModule required username={_TEXT} password={_TEXT}",
        f"LoginModule required {_ESCAPED}",
        r"-----BEGIN [A-Z ]*PRIVATE KEY-----[A-Za-z0-9+/=\\\s]*",
        f'kafka[.][a-z.]*password"\\s*value:\\s*{_TEXT}',
    )
)
"""Kafka credentials in texts of plans: as they are, and inside a quoted string, as a Connect server prints them."""
SESSION_CONF: Mapping[str, str] = {
    "spark.sql.ansi.enabled": "true",
    # It adds constants first, so (7 + a) + b overflows in a + b where the sum in the given order does not.
    "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.ReorderAssociativeOperator",
    # Tidemark's plans are one shuffle deep, and re-planning costs more than a small batch. The JVM never compiles a
    # method of more than 8,000 bytes, so a wide record is better split up than fused.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.hugeMethodLimit": "8000",
    # A state is one large file and a few small ones. With Spark's 4 MiB per file, the small ones count as much as the
    # large one, and one task reads nearly all rows.
    "spark.sql.files.openCostInBytes": str(2**18),
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.redaction.string.regex": REDACTED,
    "spark.sql.redaction.options.regex": "(?i)url|password|jaas|ssl[.]key",
    f"{_DELTA}.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration": "false",
    f"{_DELTA}.vacuum.logging.enabled": "false",
    f"{_DELTA}.snapshotPartitions": "2",
}
"""Mandatory settings of every session; set per session, so that they apply over Connect too."""
STATIC_CONF: Mapping[str, str] = {
    "spark.sql.codegen.cache.maxEntries": "2000",
    # Spark keeps the last poll of every task of a Kafka read for the next batch of a stream, outside the memory that it
    # accounts for, for five minutes. The ranges of a checkpoint are read once.
    "spark.kafka.consumer.fetchedData.cache.timeout": "1s",
    "spark.kafka.consumer.fetchedData.cache.evictorThreadRunInterval": "1s",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""Settings of a local driver; a Connect server is started with the same ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSettings:
    """Where Spark is.

    Attributes:
        master: `sc://host:port` (Connect), or the master of a driver in this process: `local[2]`, `spark://...`.
        jars: folder with Spark's extra jars, for a local driver.
        s3_jars: folder with the additional jars for a warehouse in a bucket.
        parallelism: the largest number of tasks behind a shuffle; None = as the server is configured.
        conf: more configuration for a local driver.
        session_conf: more configuration of every session, such as the address of the warehouse; no secrets.
    """

    master: str = field(repr=False)
    jars: Path | None = None
    s3_jars: Path | None = None
    parallelism: int | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    session_conf: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_connect(self) -> bool:
        """Whether Spark runs behind a Connect server."""
        return self.master.startswith("sc://")


def session_id(owner: str, attempt: int) -> str:
    """Returns the Connect session id of an attempt.

    Args:
        owner: the plan or job, with a name that is unique on the server: `<pipeline>/chk-17`.
        attempt: number of the attempt.
    """
    digits = hashlib.sha256(f"tidemark {owner}/{attempt}".encode()).hexdigest()
    return "-".join((digits[:8], digits[8:12], f"5{digits[13:16]}", f"8{digits[17:20]}", digits[20:32]))


def open_session(settings: SparkSettings, owner: str, attempt: int, rows: int | None = None) -> SparkSession:
    """Returns the configured session of one attempt.

    Args:
        settings: where Spark is.
        owner: see `session_id`.
        attempt: number of the attempt.
        rows: upper bound of the rows that it reads, which determines its tasks; None = unknown.

    Raises:
        EngineError: the server does not answer, or a later attempt has released this session.
    """
    with translate_spark_errors():
        spark = _remote(settings, owner, attempt) if settings.is_connect else _classic(settings, owner)
        widest = settings.parallelism or server_parallelism(spark, is_remote=settings.is_connect)
        _configure(spark, {**SESSION_CONF, **task_conf(widest, rows), **settings.session_conf})
        return spark


def _configure(spark: SparkSession, conf: Mapping[str, str]) -> None:
    """Sets all options in one request: a request per option takes a fifteenth of a small checkpoint over Connect."""
    at_once = getattr(spark.conf, "_set_all", None)
    if at_once is not None:
        at_once(conf, silent=False)
        return
    for name, value in conf.items():
        spark.conf.set(name, value)


def end_session(settings: SparkSettings, owner: str, attempt: int) -> None:
    """Interrupts what an earlier attempt may still run on the server, and releases its session permanently.

    The owner of attempt n calls it for attempt n-1 before it reads anything. It only saves work: correctness depends on
    the outcome key and on the compare-and-set of each commit.
    """
    if not settings.is_connect or attempt < 1:
        return
    with translate_spark_errors():
        # A release interrupts too; on a closed session every other call is an error.
        _remote(settings, owner, attempt).stop()


def _remote(settings: SparkSettings, owner: str, attempt: int) -> SparkSession:
    # A local driver has no such session.
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    # A later attempt finds the session under the same user, whom an address may name.
    url = add_parameter(settings.master, "session_id", session_id(owner, attempt))
    if "user_id" not in parameters_of(settings.master):
        url = add_parameter(url, "user_id", _USER)
    # As in `builder.remote(url)`, which takes no channel options.
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
    session: Any = ConnectSession.builder.channelBuilder(DefaultChannelBuilder(url, CHANNEL)).create()
    _OPENED.append(session)
    # The default waits ten minutes for a server that is gone, but the next attempt already repairs a checkpoint.
    session.client.set_retry_policies(policies())
    # Tidemark does not use Spark's ML, whose clean-up at exit would wait long for a server that is gone.
    cleanup = getattr(session.client, "_cleanup_ml_cache", None)
    if cleanup is not None:
        atexit.unregister(cleanup)
    made: SparkSession = session
    return made


def _classic(settings: SparkSettings, owner: str) -> SparkSession:
    builder = SparkSession.builder.master(settings.master).appName(f"tidemark {owner}")
    jars = jar_conf(settings.master, [settings.jars, settings.s3_jars], settings.conf, _SPARK_HOME)
    is_own = is_own_process(settings.master)
    python = {**_python_path(settings.conf), **WORKER_DAEMON} if is_own else {}
    for name, value in {**STATIC_CONF, **SESSION_CONF, **settings.conf, **jars, **python}.items():
        builder = builder.config(name, value)
    session: SparkSession = builder.getOrCreate()
    if is_own:
        # Otherwise it is PYSPARK_PYTHON or the shell's first `python3`, which may lack Tidemark's libraries.
        session.sparkContext.pythonExec = sys.executable
    else:
        session.sparkContext.addPyFile(str(package_zip()))
    return session


def _python_path(given: Mapping[str, str]) -> dict[str, str]:
    """Adds this process's package to the path of workers; where libraries are installed they have it anyway."""
    place = package_path()
    return {_PYTHON_PATH: os.pathsep.join(filter(None, [place, given.get(_PYTHON_PATH)]))} if place else {}
