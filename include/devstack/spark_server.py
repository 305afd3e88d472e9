"""The embedded Spark: a Connect server from the pyspark wheel, warmed up because its first queries are slow.

This module does not import pyspark: the server is a separate JVM, and the warm-up is a child process.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

from devstack.addresses import LOOPBACK, Addresses, accepts
from devstack.processes import rotated_log, write_whole
from devstack.services import Service, require_java, service_environment
from tidemark import errors
from tidemark.engine.session.installation import WORKER_DAEMON, spark_home
from tidemark.errors import TidemarkError
from tidemark.settings import Settings

PATIENCE = 180.0
WARM_UP_TIMEOUT = 240.0
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
"""The cores that this process may use: all of them are the embedded server's."""
_COLLECTOR = re.compile(r"-XX:\+Use\w+GC")
SHARED_CODE = {
    "spark.sql.artifact.isolation.enabled": "false",
    "spark.sql.artifact.isolation.alwaysApplyClassloader": "false",
    "spark.sql.codegen.cache.maxEntries": "2000",
}
"""How many generated classes Spark keeps across sessions (`engine.connect_driver`). Spark's default is a hundred; a
checkpoint of a few operators needs more, and would compile them all again."""
FORGOTTEN_READS = {
    "spark.kafka.consumer.fetchedData.cache.timeout": "1s",
    "spark.kafka.consumer.fetchedData.cache.evictorThreadRunInterval": "1s",
}
"""How long Spark keeps the last poll of each task of a Kafka read, which no task of Tidemark uses again. With Spark's
default, five minutes, these polls fill half of a heap of 2 GB while a long backlog is read."""


def prepare_spark(settings: Settings, addresses: Addresses) -> tuple[Service, ...]:
    """Write the server's properties and return how to start it.

    Args:
        settings: the stack's settings.
        addresses: the stack's ports.

    Returns:
        The one service.
    """
    folder = settings.home / "spark"
    for name in ("scratch", "tmp", "conf"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    properties = folder / "conf" / "spark-defaults.conf"
    write_whole(properties, _as_properties(server_configuration(settings, addresses)), mode=0o600)
    write_whole(folder / "conf" / "log4j2.properties", LOGGING)
    home = spark_home()
    return (
        Service(
            name="spark",
            argv=(
                str(home / "bin" / "spark-submit"),
                "--properties-file",
                str(properties),
                str(Path(errors.__file__).parent / "engine/session/connect_driver.py"),
            ),
            env=_environment(settings, home),
            is_healthy=lambda _: accepts(addresses.spark_port),
            patience=PATIENCE,
        ),
    )


def server_configuration(settings: Settings, addresses: Addresses) -> dict[str, str]:
    """Return the server's configuration.

    Time travel beyond Delta's retention is allowed, because Tidemark's manifests decide which files are kept, not their
    age. A query whose client was killed ends after the short detached timeout, so that it does not keep writing.
    """
    folder = settings.home / "spark"
    delta = "spark.databricks.delta"
    return {
        "spark.master": f"local[{CORES}]",
        "spark.app.name": "tidemark",
        "spark.driver.memory": settings.spark_driver_memory,
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.driver.extraClassPath": _class_path(settings),
        "spark.driver.extraJavaOptions": _java_options(settings, folder / "tmp"),
        "spark.local.dir": str(folder / "scratch"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        **SHARED_CODE,
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": LOOPBACK,
        "spark.connect.grpc.binding.port": str(addresses.spark_port),
        "spark.connect.execute.manager.detachedTimeout": "20s",
        **FORGOTTEN_READS,
        **WORKER_DAEMON,
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        f"{delta}.snapshotPartitions": str(CORES),
        f"{delta}.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration": "false",
        f"{delta}.vacuum.logging.enabled": "false",
        "spark.sql.ansi.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(CORES),
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": str(CORES),
        "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|credential",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


def _java_options(settings: Settings, temporary: Path) -> str:
    """Return the options of the server's JVM; those of the settings may choose another collector.

    Spark sorts in arrays of 32 MiB. G1, Java's default, needs adjacent free regions for each, and a heap of 2 GB soon
    has none, so large batches spill, collect, and in the end fail. The parallel collector compacts.
    """
    own = [f"-Djava.io.tmpdir={temporary}", f"-Dderby.system.home={temporary}"]
    chosen = settings.spark_java_options.split()
    if not any(_COLLECTOR.fullmatch(option) for option in chosen):
        own.append("-XX:+UseParallelGC")
    return " ".join([*own, *chosen])


def _class_path(settings: Settings) -> str:
    """Return Spark's extra jars; those for S3 exist only if they were fetched."""
    return os.pathsep.join(str(settings.jar_folder / profile / "*") for profile in ("spark", "s3"))


def warm_up(settings: Settings, addresses: Addresses) -> None:
    """Run a tiny query that resembles a checkpoint on a new server.

    Raises:
        TidemarkError: the query failed, or took longer than the timeout.
    """
    scratch = settings.home / "spark" / "tmp" / "warm-up"
    command = [sys.executable, "-m", "tidemark.engine.session.warm_up", addresses.of("spark"), str(scratch)]
    log = rotated_log(settings.home, "spark-warm-up")
    env = _environment(settings, spark_home())
    with log.open("wb") as output:
        try:
            answer = subprocess.run(
                command, env=env, stdout=output, stderr=subprocess.STDOUT, timeout=WARM_UP_TIMEOUT, check=False
            )
            failure = f"exit code {answer.returncode}" if answer.returncode else None
        except subprocess.TimeoutExpired:
            failure = f"no answer within {WARM_UP_TIMEOUT:.0f} s"
    if failure:
        raise TidemarkError(
            f"the Spark server listens but its first query failed ({failure})",
            safe="no table was touched.",
            next="tidemark logs spark-warm-up; tidemark logs spark; tidemark doctor",
        )


def _environment(settings: Settings, home: Path) -> dict[str, str]:
    env = service_environment(settings)
    # Variables of another Spark would override these, which make spark-submit find its folder and this Python.
    for name in [name for name in env if name.startswith(("SPARK_", "PYSPARK_"))]:
        del env[name]
    env["JAVA_HOME"] = str(require_java().home)
    env["SPARK_HOME"] = str(home)
    env["SPARK_CONF_DIR"] = str(settings.home / "spark" / "conf")
    env["SPARK_LOCAL_IP"] = LOOPBACK
    env["PYSPARK_PYTHON"] = sys.executable
    env["TMPDIR"] = str(settings.home / "spark" / "tmp")
    return env


def _as_properties(configuration: dict[str, str]) -> str:
    escaped = ((name, value.replace("\\", "\\\\")) for name, value in sorted(configuration.items()))
    return "".join(f"{name}={value}{os.linesep}" for name, value in escaped)


LOGGING = """\
rootLogger.level = warn
rootLogger.appenderRef.stdout.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yyyy-MM-dd'T'HH:mm:ss.SSSXXX} %p %c{1}: %m%n%ex
logger.connect.name = org.apache.spark.sql.connect.service
logger.connect.level = info
"""
