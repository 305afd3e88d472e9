"""The Spark that peers share: one driver of two cores in this process, with Delta, Kafka and the compiled Java peers.

Tidemark uses the same driver, so that no system has a warmer JVM than another.
"""

import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.peers.places import JARS
from devstack.services import require_java
from tidemark.engine.session.installation import spark_home
from tidemark.engine.session.session import SparkSettings, open_session

MASTER = "local[2]"
WARM = {
    "spark.driver.extraJavaOptions": "-XX:Tier4InvocationThreshold=5000 -XX:Tier4MinInvocationThreshold=600"
    " -XX:Tier4CompileThreshold=15000 -XX:Tier4BackEdgeThreshold=40000"
}
"""Java's default thresholds, because this driver represents a long-running one; Tidemark's suit short-lived drivers."""
SOURCES = Path(__file__).parent / "java"


def compiled(classes: Path, source: str = "StreamingTotals.java", jars: str = "") -> Path:
    """Compiles the Java part of a peer.

    Args:
        classes: the folder for the classes.
        source: the name of a file in `java/`.
        jars: the class path of its libraries; Spark's if empty.

    Returns:
        The folder `classes`.

    Raises:
        SystemExit: Java has no javac; the message names the package to install.
        RuntimeError: javac rejects the source.
    """
    javac = require_java().home / "bin" / "javac"
    if not javac.is_file():
        raise SystemExit(f"no {javac}: install a JDK 17 (apt-get install openjdk-17-jdk-headless), not only a JRE")
    classes.mkdir(parents=True, exist_ok=True)
    command = [str(javac), "-nowarn", "-cp", jars or f"{spark_home() / 'jars'}/*", "-d", str(classes)]
    done = subprocess.run([*command, str(SOURCES / source)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"javac refused {source}:\n{done.stderr}")
    return classes


def opened(classes: str, scratch: str, conf: Mapping[str, str] | None = None) -> SparkSession:
    """Opens the session of this process; each peer calls its `newSession()` and sets its own options."""
    asked = {**every(classes, scratch), **(conf or {})}
    return open_session(SparkSettings(master=MASTER, jars=JARS / "spark", conf=asked), "peers", 1)


def every(class_path: str, scratch: str) -> dict[str, str]:
    """The settings of every driver, however it is started."""
    return {
        "spark.driver.memory": "4g",
        "spark.driver.extraClassPath": class_path,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": scratch,
        "spark.sql.warehouse.dir": f"{scratch}/warehouse",
    }


def session_with(options: Mapping[str, str]) -> SparkSession:
    """Opens a new session of the running driver, with Tidemark's common options and the given ones."""
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
    """Has a table keep the files of every version since a time, in seconds since 1970; VACUUM counts whole hours."""
    kept = f"interval {round((time.time() - since) * 1000)} milliseconds"
    session.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ('delta.deletedFileRetentionDuration' = '{kept}')")


def vacuum(session: SparkSession, table: str) -> None:
    """Deletes the files that a table's retention no longer covers."""
    session.conf.set("spark.databricks.delta.vacuum.logging.enabled", "false")
    session.conf.set("spark.sql.sources.parallelPartitionDiscovery.parallelism", "2")
    session.sql(f"VACUUM delta.`{table}`")
