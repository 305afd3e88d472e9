"""Spark drivers of processes that make a single run, each started as its user would, with well-known and cheap options.

The user of a query calls `SparkSession.builder` with jars on the class path, Delta's settings, no web page, and the
same memory and cache of generated code as Tidemark. `TUNED` gives a query the additional settings of Tidemark's factory
as well: the same JVM options, and a class archive, which its first run creates.
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
"""The settings that the session of every peer has."""


def begun(kind: str, place: Place, scratch: str) -> SparkSession:
    """Starts the session of this process, for the single run of a peer."""
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
    """Stops the driver and waits for the class archive, if this is the run that creates it."""
    if kind == TUNED and not _archive(place).is_file():
        stop_driver(spark)


def _mapping(archive: Path) -> str:
    verb = "SharedArchiveFile" if archive.is_file() else "ArchiveClassesAtExit"
    return f"-XX:{verb}={archive} {QUIET}"


def _archive(place: Place) -> Path:
    return Path(place.folder).parent / "query.jsa"


def _packed(classes: Path) -> Path:
    """Packs the compiled Java peers into a jar, because a class archive cannot hold classes from a folder."""
    packed = classes.parent / "peers.jar"
    if not packed.is_file():
        with zipfile.ZipFile(packed, "w") as jar:
            for path in sorted(classes.rglob("*.class")):
                jar.write(path, path.relative_to(classes))
    return packed
