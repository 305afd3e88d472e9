"""Archives the classes of a Spark driver in one file that its JVM maps, instead of verifying twenty thousand classes.

Java calls this a dynamic archive of shared classes (JEP 350). `make setup-driver` creates it. A driver started by
Tidemark uses the archive for its Java and its jars, or starts without one. Java checks the size and modification time
of the jars, and continues without an archive that does not fit. Importing this module does not import pyspark.

Run it as `python -m tidemark.engine.session.class_archive FOLDER`, with the folder of jars.
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

from tidemark.engine.session.installation import jar_packages
from tidemark.errors import EngineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER = "class-archives"
"""Next to the folders of jars."""
_PACKAGES = "spark.jars.packages"
_CLASS_PATH, _OPTIONS = "spark.driver.extraClassPath", "spark.driver.defaultJavaOptions"
QUIET = "-Xlog:disable -Xlog:all=warning:stderr -Xlog:cds*=off:stderr -Xlog:class+path*=off:stderr"
"""A JVM prints its warnings to stdout, where results are; a stale archive needs no warning."""
COMPILE_LATE = " ".join(
    f"-XX:Tier4{name}Threshold={count}"
    for name, count in {"Invocation": 50_000, "MinInvocation": 6_000, "Compile": 150_000, "BackEdge": 400_000}.items()
)
"""Ten times Java's defaults: the second compiler takes a third of a short driver's CPU time away from tasks, and most
of the code that it compiles never runs again. Loops over records soon exceed these counts."""
_LIGHTLY = "-XX:TieredStopAtLevel=1"
_PATIENCE = 300.0
"""Seconds for a JVM to write its archive and exit."""


def is_own_process(master: str) -> bool:
    """Whether the executors of a master run in the driver itself and share its class path."""
    return master == "local" or master.startswith("local[")


def jars_below(*folders: Path | None) -> list[Path]:
    """Returns the jars in some folders by name, with links resolved, so that all users of them share one archive."""
    return [jar.resolve() for folder in folders if folder for jar in sorted(folder.glob("*.jar"))]


def jar_conf(master: str, folders: Sequence[Path | None], given: Mapping[str, str], spark_home: Path) -> dict[str, str]:
    """Returns how a local driver gets jars; a driver that is its own executor uses their archive, if it exists.

    If the folders lack jars that Tidemark needs, Spark resolves them by their Maven coordinates.

    Jars in `spark.jars` are copied and served, and loaded by a class loader whose classes no archive can hold, so only
    the executors of a cluster get them that way.

    Args:
        master: master of the driver.
        folders: folders with the jars, in addition to Spark's own.
        given: the caller's configuration; its values for the same settings are appended to these.
        spark_home: the folder of the pyspark wheel.
    """
    jars = jars_below(*folders)
    packages = ",".join(filter(None, [given.get(_PACKAGES), jar_packages(folders, jars, spark_home)]))
    resolved = {_PACKAGES: packages} if packages else {}
    if not is_own_process(master):
        return resolved | ({"spark.jars": ",".join(map(str, jars))} if jars else {})
    archive = archive_of(jars, spark_home)
    mapped = f'"-XX:SharedArchiveFile={archive}" {QUIET}' if archive and archive.is_file() else ""
    joined = {
        _CLASS_PATH: os.pathsep.join(filter(None, [*map(str, jars), given.get(_CLASS_PATH)])),
        _OPTIONS: " ".join(filter(None, [COMPILE_LATE, mapped, given.get(_OPTIONS)])),
    }
    return resolved | {name: value for name, value in joined.items() if value}


def archive_of(jars: Sequence[Path], spark_home: Path) -> Path | None:
    """Returns the path of the archive for this Java, these jars and this Spark; None without a Java or jars."""
    java = _virtual_machine()
    if java is None or not jars:
        return None
    digest = sha256()
    for file in (java, *jars, *jars_below(spark_home / "jars")):
        about = file.stat()
        digest.update(f"{file} {about.st_size} {about.st_mtime_ns}\n".encode())
    return jars[0].parents[1] / FOLDER / f"{digest.hexdigest()[:16]}.jsa"


def make_archive(jars: Sequence[Path]) -> Path:
    """Runs queries like those of a checkpoint in a driver of this process, whose JVM archives the loaded classes.

    Two processes may do so at once: each writes its own file, and the later one remains.

    Args:
        jars: jars in addition to Spark's own, from `jars_below`.

    Returns:
        The archive, which may have existed already.

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
                f"the JVM did not write an archive of its classes: {said}",
                safe="drivers start without it, but more slowly.",
                next="unset SPARK_CONF_DIR (a folder with files cannot be on the class path), then make setup-driver.",
            )
        made.replace(archive)
    return archive


@contextmanager
def _driver(jars: Sequence[Path], conf: Mapping[str, str]) -> "Iterator[SparkSession]":
    """Yields a driver; its JVM has exited afterwards."""
    from tidemark.engine.session.session import SparkSettings, open_session

    own = {**conf, _CLASS_PATH: os.pathsep.join(map(str, jars))}
    spark: Any = open_session(SparkSettings(master="local[2]", conf=own), "classes", 1)
    try:
        yield spark
    finally:
        stop_driver(spark)


def stop_driver(spark: Any) -> None:
    """Stops a driver that this process has started, and waits until its JVM has written its files and exited."""
    gateway = spark.sparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(_PATIENCE)


def _train(spark: "SparkSession", scratch: Path) -> None:
    """Loads what a checkpoint loads, except the parts of Kafka's client that need an answer from a broker."""
    from tidemark.engine.session.warm_up import warm_session

    warm_session(spark, scratch / "warm-up")
    reader: Any = spark.read.format("kafka").option("subscribe", "none")
    options = {"bootstrap.servers": "127.0.0.1:1", "default.api.timeout.ms": "500", "request.timeout.ms": "400"}
    for name, value in options.items():
        reader = reader.option(f"kafka.{name}", value)
    try:
        reader.load().count()
    except Exception as no_answer:
        print(f"no broker answers, as expected: {type(no_answer).__name__}", file=sys.stderr)


def _virtual_machine() -> Path | None:
    """Returns the library of the Java that Spark's scripts would start."""
    home = os.environ.get("JAVA_HOME")
    launcher = Path(home, "bin", "java") if home else Path(shutil.which("java") or "/nowhere")
    library = launcher.resolve().parents[1] / "lib" / "server" / "libjvm.so"
    return library if library.is_file() else None


def main() -> int:
    """Creates the archive for the jars below the folder given as first argument, and prints its path.

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
