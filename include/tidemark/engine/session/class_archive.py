"""Classes of a Spark driver as one file that its JVM maps, instead of reading and verifying twenty thousand of them.

Java calls it a dynamic archive of shared classes (JEP 350). `make setup-driver` makes it; a driver of our own uses the
one of its Java and its jars, and starts without it where there is none. Run as
`python -m tidemark.engine.session.class_archive
FOLDER`, the folder with the jars. Java checks the jars once more, by size and time of change, and goes on without an
archive that does not fit. Importing this imports no pyspark.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemark.errors import EngineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER = "class-archives"
"""Beside the folders of jars."""
_CLASS_PATH, _OPTIONS = "spark.driver.extraClassPath", "spark.driver.defaultJavaOptions"
QUIET = "-Xlog:disable -Xlog:all=warning:stderr -Xlog:cds*=off:stderr -Xlog:class+path*=off:stderr"
"""A JVM prints what it complains of to stdout, where answers are; of an archive that is stale nobody need know."""
COMPILE_LATE = " ".join(
    f"-XX:Tier4{name}Threshold={count}"
    for name, count in {"Invocation": 50_000, "MinInvocation": 6_000, "Compile": 150_000, "BackEdge": 400_000}.items()
)
"""Ten times Java's own counts: its second compiler takes a third of a short driver's processor time, beside tasks that
could use it, and most of what it makes is never run again. What loops over records is over these counts soon."""
_LIGHTLY = "-XX:TieredStopAtLevel=1"
_PATIENCE = 300.0
"""Seconds for a JVM to write its archive and to end."""


def is_own_process(master: str) -> bool:
    """Whether a master's executors are the driver itself, so that its class path is theirs."""
    return master == "local" or master.startswith("local[")


def jars_below(*folders: Path | None) -> list[Path]:
    """The jars of some folders by name; without links, so that one archive serves whoever sees them."""
    return [jar.resolve() for folder in folders if folder for jar in sorted(folder.glob("*.jar"))]


def jar_conf(master: str, folders: Sequence[Path | None], given: Mapping[str, str], spark_home: Path) -> dict[str, str]:
    """How a driver of our own gets jars; one whose executors are itself starts with their archive, if there is one.

    Jars of `spark.jars` are copied and served, and loaded by a class loader whose classes no archive can hold. So only
    a cluster's executors get them that way.

    Args:
        master: of the driver.
        folders: with the jars, besides Spark's own.
        given: configuration that somebody else wants; what it says of the same settings comes after ours.
        spark_home: the folder of the pyspark wheel.
    """
    jars = jars_below(*folders)
    if not is_own_process(master):
        return {"spark.jars": ",".join(map(str, jars))} if jars else {}
    archive = archive_of(jars, spark_home)
    mapped = f'"-XX:SharedArchiveFile={archive}" {QUIET}' if archive and archive.is_file() else ""
    joined = {
        _CLASS_PATH: os.pathsep.join(filter(None, [*map(str, jars), given.get(_CLASS_PATH)])),
        _OPTIONS: " ".join(filter(None, [COMPILE_LATE, mapped, given.get(_OPTIONS)])),
    }
    return {name: value for name, value in joined.items() if value}


def archive_of(jars: Sequence[Path], spark_home: Path) -> Path | None:
    """Where the archive for this Java, these jars and this Spark is, or would be; None without a Java or jars."""
    java = _virtual_machine()
    if java is None or not jars:
        return None
    digest = sha256()
    for file in (java, *jars, *jars_below(spark_home / "jars")):
        about = file.stat()
        digest.update(f"{file} {about.st_size} {about.st_mtime_ns}\n".encode())
    return jars[0].parents[1] / FOLDER / f"{digest.hexdigest()[:16]}.jsa"


def make_archive(jars: Sequence[Path]) -> Path:
    """Runs queries like a checkpoint's in a driver of this process, whose JVM writes down what it has loaded.

    Two processes may do so at once: each writes a file of its own, and the later one stays.

    Args:
        jars: besides Spark's own, as `jars_below` finds them.

    Returns:
        The archive, which may have been there already.

    Raises:
        EngineError: there is no Java or no jar, or the JVM wrote nothing.
    """
    import pyspark

    archive = archive_of(jars, Path(pyspark.__file__).parent)
    if archive is None:
        raise EngineError("there is no Java, or there are no jars for Spark", next="make setup")
    if archive.is_file():
        return archive
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".making-", dir=archive.parent) as aside:
        made, log = Path(aside, "classes.jsa"), Path(aside, "log")
        options = f'"-XX:ArchiveClassesAtExit={made}" {_LIGHTLY} -Xlog:disable "-Xlog:all=error:file={log}"'
        with _driver(jars, {_OPTIONS: options, "spark.local.dir": aside}) as spark:
            _train(spark, Path(aside))
        if not made.is_file():
            said = log.read_text(errors="replace")[-500:] if log.is_file() else "nothing"
            raise EngineError(
                f"the JVM wrote no archive of its classes and said: {said}",
                safe="drivers start without it, only later.",
                next="unset SPARK_CONF_DIR (a folder with files cannot be on the class path), then make setup-driver.",
            )
        made.replace(archive)
    return archive


@contextmanager
def _driver(jars: Sequence[Path], conf: Mapping[str, str]) -> "Iterator[SparkSession]":
    """A driver whose JVM has ended afterwards."""
    from tidemark.engine.session.session import SparkSettings, open_session

    own = {**conf, _CLASS_PATH: os.pathsep.join(map(str, jars))}
    spark: Any = open_session(SparkSettings(master="local[2]", conf=own), "classes", 1)
    try:
        yield spark
    finally:
        ended(spark)


def ended(spark: Any) -> None:
    """Stops a driver that this process has started, and waits until its JVM has ended and written what it had to."""
    gateway = spark.sparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(_PATIENCE)


def _train(spark: "SparkSession", scratch: Path) -> None:
    """What a checkpoint loads; of Kafka's client all but what an answer of a broker needs, because there is none."""
    from tidemark.engine.session.warm_up import warm_session

    warm_session(spark, scratch / "warm-up")
    reader: Any = spark.read.format("kafka").option("subscribe", "none")
    options = {"bootstrap.servers": "127.0.0.1:1", "default.api.timeout.ms": "500", "request.timeout.ms": "400"}
    for name, value in options.items():
        reader = reader.option(f"kafka.{name}", value)
    try:
        reader.load().count()
    except Exception as nobody:
        print(f"no broker answers, as expected: {type(nobody).__name__}", file=sys.stderr)


def _virtual_machine() -> Path | None:
    """The library of the Java that Spark's scripts would start."""
    home = os.environ.get("JAVA_HOME")
    launcher = Path(home, "bin", "java") if home else Path(shutil.which("java") or "/nowhere")
    library = launcher.resolve().parents[1] / "lib" / "server" / "libjvm.so"
    return library if library.is_file() else None


def main() -> int:
    """Makes the archive for the jars below the folder named by the first argument, and prints where it is.

    Returns:
        The exit code.
    """
    try:
        made = make_archive(jars_below(Path(sys.argv[1], "spark")))
    except EngineError as error:
        print(f"setup: {error}", file=sys.stderr)
        return error.code
    except OSError as error:
        print(f"setup: no archive of classes was written: {error}", file=sys.stderr)
        return EngineError.code
    print(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
