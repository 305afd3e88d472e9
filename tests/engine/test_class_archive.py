"""A driver of its own: how it gets jars, which archive of classes it maps, and what becomes of a stale one."""

import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pyspark
import pytest

from devstack.services import require_java
from tests.support.spark_cluster import ROOT
from tidemark.engine.session.class_archive import COMPILE_LATE, QUIET, archive_of, jar_conf, jars_below

SPARK_HOME = Path(pyspark.__file__).parent
CLASS_PATH, OPTIONS, SERVED = "spark.driver.extraClassPath", "spark.driver.defaultJavaOptions", "spark.jars"
PACKAGES = "spark.jars.packages"
MAKES = """
import sys
from pathlib import Path
from tidemark.engine.session import class_archive

class_archive._train = lambda spark, scratch: spark.range(3).count()
print(class_archive.make_archive(class_archive.jars_below(Path(sys.argv[1]))))
"""
MAPS = """
import sys
from pathlib import Path
from tidemark.engine.session.session import SparkSettings, open_session

spark = open_session(SparkSettings(master="local[1]", jars=Path(sys.argv[1])), "tests", 1)
assert spark.range(3).count() == 3
print(Path(f"/proc/{spark.sparkContext._gateway.proc.pid}/maps").read_text().count("/class-archives/"))
spark.stop()
"""


A, B = "delta-spark_4.1_2.13-4.4.0.jar", "spark-sql-kafka-0-10_2.13-4.1.3.jar"


@pytest.fixture
def jars(tmp_path: Path) -> Path:
    """A folder with the two jars that a driver needs."""
    folder = tmp_path / "jars" / "spark"
    folder.mkdir(parents=True)
    for name in (B, A):
        (folder / name).write_text(name)
    return folder


def _conf(jars: Path, **given: str) -> dict[str, str]:
    return jar_conf(
        "local[2]", [jars, None], {name.replace("_", "."): text for name, text in given.items()}, SPARK_HOME
    )


def _archive(jars: Path) -> Path:
    found = archive_of(jars_below(jars), SPARK_HOME)
    assert found is not None
    return found


@pytest.mark.parametrize("master", ["spark://host:7077", "local-cluster[2,1,512]"])
def test_executors_of_their_own_are_served_jars(master: str, jars: Path) -> None:
    assert jar_conf(master, [jars, None], {}, SPARK_HOME) == {SERVED: f"{jars / A},{jars / B}"}
    assert jar_conf(master, [None, None], {}, SPARK_HOME) == {}


def test_a_driver_that_is_its_executor_has_jars_on_its_class_path_before_anybody_elses(jars: Path) -> None:
    found = _conf(jars, spark_driver_extraClassPath="/theirs")
    assert found == {CLASS_PATH: f"{jars / A}:{jars / B}:/theirs", OPTIONS: COMPILE_LATE}


def test_jars_that_are_missing_are_resolved_in_the_versions_of_the_installed_packages(jars: Path) -> None:
    delta = f"io.delta:delta-spark_4.1_2.13:{version('delta-spark')}"
    kafka = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{version('pyspark')}"
    assert PACKAGES not in _conf(jars)
    (jars / A).unlink()
    assert _conf(jars)[PACKAGES] == delta
    (jars / B).unlink()
    assert _conf(jars, spark_jars_packages="mine:own:1")[PACKAGES] == f"mine:own:1,{delta},{kafka}"
    bucket = jar_conf("spark://host:7077", [jars, jars.parent / "s3"], {}, SPARK_HOME)
    (hadoop,) = (SPARK_HOME / "jars").glob("hadoop-client-api-*.jar")
    right = hadoop.stem.removeprefix("hadoop-client-api-")
    assert bucket == {PACKAGES: f"{delta},{kafka},org.apache.hadoop:hadoop-aws:{right}"}


def test_an_archive_is_mapped_where_there_is_one_and_their_options_come_last(jars: Path) -> None:
    archive = _archive(jars)
    assert archive.parent.parent == jars.parent
    assert "SharedArchiveFile" not in _conf(jars)[OPTIONS]
    archive.parent.mkdir()
    archive.touch()
    options = _conf(jars, spark_driver_defaultJavaOptions="-Xlog:gc")[OPTIONS]
    assert options == f'{COMPILE_LATE} "-XX:SharedArchiveFile={archive}" {QUIET} -Xlog:gc'


def test_another_jar_is_another_archive(jars: Path) -> None:
    before = _archive(jars)
    (jars / A).write_text("a newer one")
    after = _archive(jars)
    (jars / "c.jar").touch()
    assert len({before, after, _archive(jars)}) == 3


def test_a_link_to_the_jars_finds_their_archive(jars: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(jars.parent)
    assert _archive(tmp_path / "link" / "spark") == _archive(jars)


def test_without_java_there_is_no_archive(jars: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert archive_of(jars_below(jars), SPARK_HOME) is None
    assert _conf(jars)[OPTIONS] == COMPILE_LATE


@pytest.mark.parametrize("text", ["", "no archive at all"])
def test_java_starts_with_an_archive_that_does_not_fit_and_says_nothing_where_answers_are(
    text: str, tmp_path: Path
) -> None:
    (tmp_path / "x.jsa").write_text(text)
    options = [*COMPILE_LATE.split(), f"-XX:SharedArchiveFile={tmp_path / 'x.jsa'}", *QUIET.split(), "-version"]
    done = subprocess.run([require_java().executable, *options], capture_output=True, text=True, check=True)
    assert done.stdout == ""
    assert "version" in done.stderr
    assert "archive" not in done.stderr


@pytest.mark.spark
@pytest.mark.slow
def test_what_was_made_is_mapped(tmp_path: Path) -> None:
    jars = Path(shutil.copytree(ROOT / ".jars" / "spark", tmp_path / "jars" / "spark"))
    made = Path(_said(MAKES, jars))
    assert [path.name for path in made.parent.iterdir()] == [made.name]
    assert int(_said(MAPS, jars)) > 0


def _said(script: str, jars: Path) -> str:
    """The last line of a process; a Spark driver and a Connect client do not live in one."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    command = [sys.executable, "-c", script, str(jars)]
    env = kept | {"PYTHONPATH": str(ROOT / "include")}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()[-1]
