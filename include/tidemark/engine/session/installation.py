"""What a driver needs beyond the pyspark wheel where Tidemark is installed without a checkout: its code, and jars.

Importing this module does not import pyspark.
"""

import re
import sysconfig
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from tidemark.errors import EngineError

PACKAGE = Path(__file__).resolve().parents[2]
S3_PROFILE = "s3"
"""Name of the folder of jars for a warehouse in a bucket."""
_SCALA = "2.13"
WORKER_DAEMON: Mapping[str, str] = {"spark.python.daemon.module": "tidemark.engine.session.worker_daemon"}
"""Settings of a driver whose workers run on this machine, with this installation."""


def spark_home() -> Path:
    """Returns the folder of the pyspark wheel, without importing it.

    Raises:
        EngineError: pyspark is not installed.
    """
    found = find_spec("pyspark")
    if found is None or not found.submodule_search_locations:
        raise EngineError(
            "pyspark is not installed", next="pip install 'tidemark[spark]'    (in a checkout: make setup)."
        )
    return Path(next(iter(found.submodule_search_locations)))


def package_path() -> str:
    """Returns the folder to add to PYTHONPATH of drivers and workers; empty if Tidemark is in their site-packages."""
    place = str(PACKAGE.parent)
    return "" if place in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib")) else place


def jar_packages(folders: Sequence[Path | None], jars: Sequence[Path], spark_home: Path) -> str:
    """Returns the Maven coordinates of jars that are missing, as `spark.jars.packages` takes them.

    Spark's Ivy resolves them when the driver starts, with the settings that `spark.jars.ivySettings` names, and keeps
    them in its cache. The versions are those of the installed packages.

    Args:
        folders: the folders that should hold the jars; one named `s3` if the warehouse is in a bucket. If there are
            none, the caller gets its jars in another way.
        jars: the jars in them.
        spark_home: the folder of the pyspark wheel, whose own jars count too.

    Returns:
        Coordinates separated by commas; empty if nothing is missing.

    Raises:
        EngineError: jars are missing, and the package that says which ones is not installed.
    """
    if not any(folders):
        return ""
    names = [jar.name for jar in (*jars, *(spark_home / "jars").glob("*.jar"))]
    missing = []
    if not any(name.startswith("delta-spark_") for name in names):
        spark, delta = _version("pyspark"), _version("delta-spark")
        missing.append(f"io.delta:delta-spark_{'.'.join(spark.split('.')[:2])}_{_SCALA}:{delta}")
    if not any(name.startswith("spark-sql-kafka-0-10_") for name in names):
        missing.append(f"org.apache.spark:spark-sql-kafka-0-10_{_SCALA}:{_version('pyspark')}")
    wants_s3 = any(folder is not None and folder.name == S3_PROFILE for folder in folders)
    if wants_s3 and not any(name.startswith("hadoop-aws-") for name in names):
        missing.append(f"org.apache.hadoop:hadoop-aws:{_hadoop(names)}")
    return ",".join(missing)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        raise EngineError(
            f"{package} is not installed, so the version of Spark's jars is unknown",
            next="pip install 'tidemark[spark]'    (or set TIDEMARK_JARS to a folder of jars).",
        ) from None


def _hadoop(names: Sequence[str]) -> str:
    found = [m[1] for name in names if (m := re.fullmatch(r"hadoop-client-api-([\d.]+)\.jar", name))]
    if not found:
        raise EngineError(
            "the installed Spark has no Hadoop, so the version of hadoop-aws is unknown",
            next="set TIDEMARK_JARS to a folder of jars.",
        )
    return found[0]
