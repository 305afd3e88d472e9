"""Drivers of processes that make a single run: each as its user would start it, with what is well known and cheap.

A query's user writes `SparkSession.builder`: jars on the class path, Delta's settings, no page, the same memory and
cache of generated code as ours. What Tidemark's factory does besides, `TUNED` does for a query too: the same options of
the JVM, and an archive of classes, which its first run makes.
"""

import zipfile
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.peers.places import JARS, Place
from benchmarks.peers.sparks import MASTER, every, opened
from tidemark.engine.session.class_archive import COMPILE_LATE, QUIET, jars_below, stop_driver
from tidemark.engine.session.session import STATIC_CONF

OURS, TUNED = "tidemark", "append-tuned"
ONE_PEER = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
"""What the session of every peer has."""


def begun(kind: str, place: Place, scratch: str) -> SparkSession:
    """The session of this process, for the one run of a peer."""
    if kind == OURS:
        return opened("", scratch)
    jars = [*map(str, jars_below(JARS / "spark")), str(_packed(Path(place.classes)))]
    conf = {**every(":".join(jars), scratch), **STATIC_CONF, **ONE_PEER}
    if kind == TUNED:
        conf["spark.driver.extraJavaOptions"] = f"{COMPILE_LATE} {_mapping(_archive(place))}"
    builder = SparkSession.builder.master(MASTER).appName(kind)
    for name, value in conf.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def left(kind: str, place: Place, spark: SparkSession) -> None:
    """Waits for the archive, where this run is the one that makes it."""
    if kind == TUNED and not _archive(place).is_file():
        stop_driver(spark)


def _mapping(archive: Path) -> str:
    verb = "SharedArchiveFile" if archive.is_file() else "ArchiveClassesAtExit"
    return f"-XX:{verb}={archive} {QUIET}"


def _archive(place: Place) -> Path:
    return Path(place.folder).parent / "query.jsa"


def _packed(classes: Path) -> Path:
    """The compiled Java peers as a jar, because no archive holds the classes of a folder."""
    packed = classes.parent / "peers.jar"
    if not packed.is_file():
        with zipfile.ZipFile(packed, "w") as jar:
            for path in sorted(classes.rglob("*.class")):
                jar.write(path, path.relative_to(classes))
    return packed
