"""The Spark that peers run in: one driver of two cores in this process, with Delta, Kafka and the compiled Java peers.

Tidemark takes the same driver, so that all share what is warm and what is not.
"""

import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.peers.places import JARS
from devstack.services import require_java
from devstack.spark_server import find_spark_home
from tidemark.engine.session.session import SparkSettings, open_session

MASTER = "local[2]"
WARM = {
    "spark.driver.extraJavaOptions": "-XX:Tier4InvocationThreshold=5000 -XX:Tier4MinInvocationThreshold=600"
    " -XX:Tier4CompileThreshold=15000 -XX:Tier4BackEdgeThreshold=40000"
}
"""Java's own thresholds, for a driver that stands for one that has run for long; ours are those of short ones."""
SOURCES = Path(__file__).parent / "java"


def compiled(classes: Path, source: str = "StreamingTotals.java", jars: str = "") -> Path:
    """Compiles the Java side of a peer.

    Args:
        classes: a folder for the classes.
        source: a file of `java/`.
        jars: class path of its libraries; Spark's when empty.

    Returns:
        That folder.

    Raises:
        SystemExit: there is no javac beside Java; one line says what to install.
        RuntimeError: it refuses.
    """
    javac = require_java().home / "bin" / "javac"
    if not javac.is_file():
        raise SystemExit(f"no {javac}: install a JDK 17 (apt-get install openjdk-17-jdk-headless), not only a JRE")
    classes.mkdir(parents=True, exist_ok=True)
    command = [str(javac), "-nowarn", "-cp", jars or f"{find_spark_home() / 'jars'}/*", "-d", str(classes)]
    done = subprocess.run([*command, str(SOURCES / source)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"javac refused {source}:\n{done.stderr}")
    return classes


def opened(classes: str, scratch: str, conf: Mapping[str, str] | None = None) -> SparkSession:
    """The session of this process; peers take `newSession()` of it, each with options of its own."""
    asked = {**every(classes, scratch), **(conf or {})}
    return open_session(SparkSettings(master=MASTER, jars=JARS / "spark", conf=asked), "peers", 1)


def every(class_path: str, scratch: str) -> dict[str, str]:
    """What every driver gets, whoever starts it."""
    return {
        "spark.driver.memory": "4g",
        "spark.driver.extraClassPath": class_path,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": scratch,
        "spark.sql.warehouse.dir": f"{scratch}/warehouse",
    }


def session_with(options: Mapping[str, str]) -> SparkSession:
    """A new session of the running driver, with the house's options and these."""
    running = SparkSession.getActiveSession()
    assert running is not None, "no driver runs in this process"
    shared = ("spark.sql.ansi.enabled", "spark.sql.session.timeZone", "spark.sql.parquet.outputTimestampType")
    session = running.newSession()
    for name in shared:
        value = running.conf.get(name)
        assert value is not None, name
        session.conf.set(name, value)
    for name, value in {"spark.sql.shuffle.partitions": "2", **options}.items():
        session.conf.set(name, value)
    return session


def keep_since(session: SparkSession, table: str, since: float) -> None:
    """Has a table keep what any version has needed since a moment, in seconds since 1970; VACUUM counts whole hours."""
    kept = f"interval {round((time.time() - since) * 1000)} milliseconds"
    session.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ('delta.deletedFileRetentionDuration' = '{kept}')")


def vacuum(session: SparkSession, table: str) -> None:
    """Deletes the files that a table need not keep."""
    session.conf.set("spark.databricks.delta.vacuum.logging.enabled", "false")
    session.conf.set("spark.sql.sources.parallelPartitionDiscovery.parallelism", "2")
    session.sql(f"VACUUM delta.`{table}`")
