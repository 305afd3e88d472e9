"""`docs/tutorial.md`, followed from its first line to its last: own topic, pipeline, run, DAG, savepoint, restore.

A block of Python is saved under the name in the line before it, a block of shell is typed. The DAG is run by
`dag.test()` in a process and an Airflow home of its own, over the same broker, Spark and warehouse.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.test_how_to import ROOT, TIMEOUT, Reader, commands, reader

__all__ = ["commands", "reader"]
"""Fixtures."""

PAGE = ROOT / "docs" / "tutorial.md"
STEP = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RUN_DAG = """
import sys
from airflow.utils.db import initdb

initdb()
from airflow.dag_processing.dagbag import DagBag

bag = DagBag(sys.argv[1])
assert bag.import_errors == {}, bag.import_errors
run = bag.dags["orders"].test(run_conf=None)
assert run.state == "success", run.state
"""

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.airflow,
    pytest.mark.slow,
    pytest.mark.timeout(900),
]


def _steps() -> list[tuple[str, str, str]]:
    """Per block its language, its text, and the file that the text before it names for it; in reading order."""
    page, found, end = PAGE.read_text(), [], 0
    for block in STEP.finditer(page):
        named = re.findall(r"`([\w/]+\.py)`", page[end : block.start()])
        found.append((block[1], block[2], named[-1] if block[1] == "python" else ""))
        end = block.end()
    return found


def _save(folder: Path, name: str, text: str) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


def _run_dag(follower: Reader) -> None:
    home = follower.folder / "airflow"
    own = {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(follower.folder / "dags"),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home}/airflow.db",
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
    }
    done = subprocess.run(
        [sys.executable, "-c", RUN_DAG, str(follower.folder / "dags")],
        cwd=follower.folder, env=follower.env | own, capture_output=True, text=True, timeout=TIMEOUT, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


@pytest.fixture(scope="module")
def follower(reader: Reader) -> Reader:
    """A reader with folders of their own for pipelines and DAGs, in place of the checkout's."""
    folder = reader.folder
    paths = [str(folder / "include"), str(ROOT / "include")]
    more = {"TIDEMARK_PIPELINES": str(folder / "include" / "pipelines"), "PYTHONPATH": os.pathsep.join(paths)}
    return Reader(folder, reader.env | more)


def test_the_tutorial(follower: Reader) -> None:
    totals = []
    for language, text, name in _steps():
        if name:
            _save(follower.folder, name, text)
        if name.startswith("dags/"):
            _run_dag(follower)
        if language == "bash":
            for line in text.splitlines():
                done = follower.types(line)
                assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
                if line.startswith("tidemark state show"):
                    rows = json.loads(follower.types(f"{line} --json").stdout)
                    totals.append({row["customer"]: (row["orders"], row["spent"]) for row in rows})
    assert totals[0] == {"anna": (2, 35), "bert": (1, 12)}
    assert totals[1] == totals[2] == {"anna": (3, 55), "bert": (2, 112), "carl": (2, 9)}
    listed = json.loads(follower.types("tidemark timeline list orders --json").stdout)
    assert [t["timeline"] for t in listed if t["is_live"]] == ["t2"]
