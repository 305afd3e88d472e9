"""Two days of trips through the real scheduler: manifests, asset events, compaction, refusals and pages."""

import json
import os
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from devstack.demo.dag_runs import Dag
from devstack.demo.native import Backfill
from devstack.demo.topic_loader import TopicLoader
from tests.e2e.conftest import ROOT, Stack
from tests.support.kafka import Sent as Message
from tests.support.kafka import Topics
from tidemark.cli.airflow_api import AirflowError, Json
from tidemark.context import open_context
from tidemark.operations import reads, stop

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.filterwarnings("default"), pytest.mark.timeout(900)]
DAY = datetime(2024, 3, 1, tzinfo=UTC)
PATIENCE = 120.0


@dataclass(frozen=True)
class Sent:
    """A record to load."""

    row: int
    key: bytes | None
    value: bytes
    timestamp_ms: int


def trip(row: int, bus: str | None, miles: int, day: int) -> Sent:
    at = DAY + timedelta(days=day, hours=1 + row)
    value = json.dumps({"bus": bus, "miles": miles, "ended_at": at.isoformat()}).encode()
    return Sent(row, bus.encode() if bus else None, value, int(at.timestamp() * 1000))


TRIPS = [trip(0, "a", 3, 0), trip(1, "b", 5, 0), trip(2, None, 9, 0), trip(3, "a", 4, 1), trip(4, "late", 1, 2)]


def finished(stack: Stack, dag: str, run: str) -> Json:
    deadline = time.monotonic() + PATIENCE
    while True:
        found = stack.api.get(f"dags/{dag}/dagRuns/{run}")
        if found["state"] in ("success", "failed"):
            return found
        assert time.monotonic() < deadline, f"{run} is still {found['state']}"
        time.sleep(0.5)


def unpause(stack: Stack) -> None:
    stack.api.patch("dags/trips", {"is_paused": False})


def triggered(stack: Stack, run: str, conf: dict[str, Any]) -> str:
    stack.api.post("dags/trips/dagRuns", {"dag_run_id": run, "logical_date": None, "conf": conf})
    return str(finished(stack, "trips", run)["state"])


def page(stack: Stack, path: str) -> tuple[int, str]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(stack.settings.airflow_address + path, timeout=30) as answer:
        return answer.status, answer.read().decode()


@pytest.fixture(scope="module")
def backfilled(stack: Stack) -> Stack:
    """Both days are checkpointed by a native backfill."""
    TopicLoader(stack.settings.kafka_address, "trips", partitions=2).load(TRIPS)
    backfill = Backfill(api=stack.api, dag="trips", first=DAY, last=DAY + timedelta(days=1), runs=2)
    Dag(api=stack.api, id="trips_compact").pause(False)
    backfill.wait(backfill.start())
    return stack


def buses(stack: Stack, checkpoint: int) -> dict[str, tuple[int, int]]:
    table = reads.read_state(open_context(stack.settings), "trips", "buses", checkpoint=checkpoint)
    return {row["bus"]: (row["trips"], row["miles"]) for row in table.to_pylist()}


def test_each_interval_became_one_checkpoint(backfilled: Stack) -> None:
    first, second = reversed(reads.list_checkpoints(open_context(backfilled.settings), "trips"))
    assert (first.id, second.id) == (1, 2)
    assert [c.sealed.facts.records for c in (first, second)] == [3, 1]
    assert [c.sealed.acks[0].dead_lettered for c in (first, second)] == [1, 0]
    assert buses(backfilled, 1) == {"a": (1, 3), "b": (1, 5)}
    assert buses(backfilled, 2) == {"a": (2, 7), "b": (1, 5)}


def test_assets_have_events_with_facts_and_keys(backfilled: Stack) -> None:
    events = backfilled.api.get("assets/events", source_dag_id="trips", limit=100)["asset_events"]
    told = sorted((e["name"], e["partition_key"], e["extra"]["id"]) for e in events)
    assert told == [
        ("trips/checkpoint", "chk-1", "chk-1"),
        ("trips/checkpoint", "chk-2", "chk-2"),
        ("trips/completed", None, "chk-1"),
        ("trips/completed", None, "chk-2"),
        ("trips/dead_letters/buses", "chk-1", "chk-1"),
        ("trips/state/buses", "chk-1", "chk-1"),
        ("trips/state/buses", "chk-2", "chk-2"),
    ]


def test_compaction_ran_beside_and_found_nothing_due(backfilled: Stack) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        runs = backfilled.api.get("dags/trips_compact/dagRuns", limit=100)["dag_runs"]
        if len(runs) >= 2 and all(run["state"] == "success" for run in runs):
            break
        assert time.monotonic() < deadline, runs
        time.sleep(0.5)
    assert {run["partition_key"] for run in runs} == {"chk-1", "chk-2"}


def test_a_covered_time_succeeds_and_says_so(backfilled: Stack) -> None:
    assert triggered(backfilled, "covered", {"until": "2024-03-02T00:00:00Z"}) == "success"
    assert any("covered by chk-1" in line for line in backfilled.api.log_tail("trips", "covered", "plan", 1))
    tasks = backfilled.api.get("dags/trips/dagRuns/covered/taskInstances")["task_instances"]
    assert {t["task_id"]: t["state"] for t in tasks}["complete"] == "skipped"


def test_conf_is_checked_by_airflow_and_by_us(backfilled: Stack) -> None:
    with pytest.raises(AirflowError) as refused:
        triggered(backfilled, "too-few", {"max_records": 0})
    assert refused.value.status == 400
    assert triggered(backfilled, "misspelt", {"max_record": 1}) == "failed"
    assert any("max_record" in line for line in backfilled.api.log_tail("trips", "misspelt", "plan", 1))


def test_a_run_on_demand_takes_what_is_left(backfilled: Stack) -> None:
    assert triggered(backfilled, "rest", {}) == "success"
    newest = reads.get_checkpoint(open_context(backfilled.settings), "trips")
    assert newest.plan.origin == "rest"
    assert buses(backfilled, newest.id)["late"] == (1, 1)


def typed(*words: str) -> Json:
    """The JSON answer of a command, in a process of its own."""
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "include"), str(ROOT)])}
    command = [sys.executable, "-m", "tidemark.cli.main", *words, "--json"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    answer: Json = json.loads(done.stdout)
    return answer


def test_a_stop_with_a_savepoint_pauses_the_dag_when_its_runs_have_ended_and_resume_unpauses_it(
    backfilled: Stack,
) -> None:
    api, before = backfilled.api, reads.get_checkpoint(open_context(backfilled.settings), "trips")
    stopped = typed("stop", "trips", "--savepoint", "done")
    assert (stopped["paused_dags"], stopped["followed_by"]) == (["trips"], None)
    assert int(stopped["checkpoint"].removeprefix("chk-")) > before.id
    assert {dag: api.get(f"dags/{dag}")["is_paused"] for dag in ("trips", "trips_compact")} == {
        "trips": True, "trips_compact": False,
    }  # fmt: skip
    unpause(backfilled)
    assert triggered(backfilled, "while-stopped", {}) == "failed"
    assert any("STOPPED" in line for line in api.log_tail("trips", "while-stopped", "plan", 1))
    assert typed("resume", "trips") == {"pipeline": "trips", "resumed": True, "unpaused_dags": ["trips"]}
    assert api.get("dags/trips")["is_paused"] is False


def more(stack: Stack, trips: list[Sent]) -> None:
    messages = [Message(t.value, key=t.key, timestamp_ms=t.timestamp_ms) for t in trips]
    Topics(stack.settings.kafka_address).produce("trips", messages)


def test_failed_checkpoints_alone_pause_the_schedule(backfilled: Stack) -> None:
    def paused() -> bool:
        return bool(backfilled.api.get("dags/trips")["is_paused"])

    opened = open_context(backfilled.settings)
    stop.stop(opened, "trips", "disk swap")
    for n in range(3):  # more than the two failures that the trips tolerate
        assert triggered(backfilled, f"stopped-{n}", {}) == "failed"
    stop.resume(opened, "trips", "done")
    assert triggered(backfilled, "slip", {"max_record": 1}) == "failed"
    assert not paused()
    more(backfilled, [trip(n, None, 1, 2) for n in range(4)])
    seen = []
    for n in range(3):
        assert triggered(backfilled, f"dead-{n}", {}) == "failed"
        seen.append(paused())
    assert seen == [False, False, True], "every record is a dead letter, three times"
    unpause(backfilled)
    more(backfilled, [trip(n, "b", 1, 2) for n in range(5)])
    assert triggered(backfilled, "mended", {}) == "success"


def test_nothing_failed_to_import_and_the_pages_are_there(backfilled: Stack) -> None:
    assert backfilled.api.get("importErrors")["total_entries"] == 0
    for path in ("/", "/dags/trips", "/dags/trips/runs/rest", "/assets"):
        status, text = page(backfilled, path)
        assert status == 200
        assert "<html" in text.lower()
    assert backfilled.api.get("dags/trips/details")["doc_md"].startswith("### Checkpoints of `trips`")


def test_no_secret_reached_a_log(backfilled: Stack) -> None:
    from devstack.credentials import load_credentials

    login = load_credentials(backfilled.settings.home)
    assert login is not None
    password = login.airflow_admin_password
    logs = [p for p in backfilled.settings.home.rglob("*.log") if p.is_file()]
    assert logs
    assert [p.name for p in logs if password in p.read_text(errors="replace")] == []
