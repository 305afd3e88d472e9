"""What the scheduler imports before it forks is all of ours that a checkpoint's tasks need; and it stays forkable."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.airflow]
HERE = Path(__file__).parent
FOUR_TASKS = """
import json, sys, threading
import psutil
from tidemark.airflow.preloading import OURS, preload

preload(OURS)
from tests.support.airflow import AirflowPipeline
from tidemark.coordinator.checkpoints.job import ignore_step
from tidemark.ports import PlanRequest
from tidemark.context import Context
from tidemark.answers.checkpoint_facts import checkpoint_facts
from tidemark.operations import checkpoints, observability

world = AirflowPipeline()
world.drive("a", 3)
connections = len(psutil.Process().net_connections())
before, threads, opened = set(sys.modules), threading.active_count(), world.open_context()
slot = checkpoints.plan(opened, "trips", PlanRequest(origin="x")).slot
checkpoints.fold(opened, "trips", slot, PlanRequest(origin="x"))
checkpoints.validate(opened, "trips", slot)
done = checkpoints.complete(opened, "trips", slot)
with opened.lock("trips", "t1"):
    Context.job(opened, opened.pipeline("trips"), None, ignore_step)
observability.report_metrics(opened, "trips")
checkpoint_facts(done)
new = sorted(name for name in set(sys.modules) - before if name.startswith("tidemark."))
told = {"lineage": "openlineage" in sys.modules}
told |= {"new": new, "threads": threads, "connections": connections, "records": done.sealed.facts.records}
json.dump(told, sys.stdout)
"""


@pytest.mark.parametrize("events", [False, True], ids=["", "with lineage events"])
def test_the_four_tasks_import_nothing_more_of_ours(tmp_path: Path, events: bool) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("TIDEMARK_", "AIRFLOW_"))}
    env |= {
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "TIDEMARK_HOME": str(tmp_path),
        "TIDEMARK_PIPELINES": str(HERE / "pipelines"),
        "TIDEMARK_SPARK": "sc://nowhere:1",
        "TIDEMARK_KAFKA_BOOTSTRAP": "nowhere:1",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    if events:
        env["TIDEMARK_OPENLINEAGE"] = f"file:{tmp_path}/lineage.jsonl"
    done = subprocess.run([sys.executable, "-c", FOUR_TASKS], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told == {"new": [], "lineage": events, "threads": 1, "connections": 0, "records": 1}
    assert (tmp_path / "lineage.jsonl").exists() == events
