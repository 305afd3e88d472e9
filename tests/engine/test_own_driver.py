"""A driver of its own in any shell: its Python workers run what the driver runs, and find the package that it has."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.spark_cluster import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.slow]
SEEN = """
import sys
from pathlib import Path

sys.path.insert(0, sys.argv[2])
import tidemark
from tidemark.engine.session.session import SparkSettings, open_session

def seen(batches):
    import sys
    import pyarrow as pa
    import pyspark
    import tidemark
    zips = [place for place in sys.path_importer_cache if ".zip" in place or ".jar" in place]
    for _ in batches:
        yield pa.RecordBatch.from_pydict({
            "python": [sys.executable], "package": [tidemark.__file__], "spark": [pyspark.__file__], "zips": [zips]
        })

conf = {"spark.executorEnv.PYTHONPATH": sys.argv[3]} if len(sys.argv) > 3 else {}
spark = open_session(SparkSettings(master="local[1]", jars=Path(sys.argv[1]), conf=conf), "tests", 1)
(row,) = spark.range(1).mapInArrow(seen, "python STRING, package STRING, spark STRING, zips ARRAY<STRING>").collect()
spark.stop()
assert (row.python, row.package) == (sys.executable, tidemark.__file__), row
import pyspark
assert (row.spark, row.zips) == (pyspark.__file__, []), row
print(row.package)
"""
OTHER = f"""#!/bin/sh
exec {shutil.which("python3", path="/usr/bin:/usr/local/bin") or sys.executable} -I -S "$@"
"""
"""A Python without any library."""


@pytest.fixture
def shell(tmp_path: Path) -> dict[str, str]:
    """The environment of a shell whose `python3` is another one, and that knows nothing of Spark or Tidemark."""
    other = tmp_path / "bin" / "python3"
    other.parent.mkdir()
    other.write_text(OTHER)
    other.chmod(0o755)
    unknown = ("SPARK_", "PYSPARK_", "PYTHON")
    env = {name: value for name, value in os.environ.items() if not name.startswith(unknown)}
    return env | {"PATH": os.pathsep.join([str(other.parent), env["PATH"]])}


@pytest.mark.parametrize("given", [{}, {"PYSPARK_PYTHON": "python3"}], ids=["nothing given", "a Python given"])
def test_workers_run_the_drivers_python_and_import_its_package(
    given: dict[str, str], shell: dict[str, str], tmp_path: Path
) -> None:
    package = Path(shutil.copytree(ROOT / "include" / "tidemark", tmp_path / "place" / "tidemark"))
    command = [sys.executable, "-c", SEEN, str(ROOT / ".jars" / "spark"), str(package.parent), str(tmp_path)]
    done = subprocess.run(command, env=shell | given, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-1] == str(package / "__init__.py")
