"""DAG runs that records start, by the real triggerer, and those that another pipeline's checkpoints start behind them.

The tests grow one topic and run in the order in which they are written.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from typing import Any

import psutil
import pytest

from tests.e2e.conftest import Stack, _processes, _tidemark
from tests.support.kafka import Sent, Topics
from tidemark.cli.airflow_api import Json
from tidemark.context import open_context
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.operations import reads

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.filterwarnings("default"), pytest.mark.timeout(900)]
PATIENCE = 180.0
MIN_RECORDS, MAX_WAIT = 5, 20.0
"""As the DAG file has them."""


def send(stack: Stack, count: int) -> None:
    value = json.dumps({"harbour": "kiel"}).encode()
    now_ms = time.time_ns() // 1_000_000
    records = [Sent(value, partition=n % 2, timestamp_ms=now_ms) for n in range(count)]
    Topics(stack.settings.kafka_address).produce("ships", records)


def until(found: Callable[[], Any], what: str, every: float = 0.5) -> Any:
    deadline = time.monotonic() + PATIENCE
    while not (answer := found()):
        assert time.monotonic() < deadline, what
        time.sleep(every)
    return answer


def checkpoints(stack: Stack, name: str) -> list[Checkpoint]:
    """Oldest first."""
    context = open_context(stack.settings)
    return list(reversed(reads.list_checkpoints(context, name))) if context.warehouse.has_begun(name) else []


def ships(stack: Stack, name: str) -> int:
    newest = checkpoints(stack, name)[-1:]
    if not newest:
        return 0
    table = reads.read_state(open_context(stack.settings), name, "harbours", checkpoint=newest[0].id)
    return sum(row["ships"] for row in table.to_pylist())


def runs(stack: Stack, dag: str) -> list[Json]:
    return list(stack.api.get(f"dags/{dag}/dagRuns", order_by="run_after", limit=100)["dag_runs"])


def events(stack: Stack, asset: str) -> list[Json]:
    return [e for e in stack.api.get("assets/events", limit=1000)["asset_events"] if e["name"] == asset]


def settle(stack: Stack, total: int) -> None:
    """Waits until both pipelines have read so many ships, and no run is active."""

    def is_quiet() -> bool:
        done = all(run["state"] == "success" for dag in ("arrivals", "berths") for run in runs(stack, dag))
        return done and ships(stack, "arrivals") == ships(stack, "berths") == total

    until(is_quiet, f"{ships(stack, 'arrivals')} and {ships(stack, 'berths')} of {total} ships")


@pytest.fixture(scope="module")
def harbours(stack: Stack) -> Stack:
    """Both DAGs are on, and five ships have come."""
    Topics(stack.settings.kafka_address).make("ships", partitions=2)
    send(stack, MIN_RECORDS)
    for dag in ("berths", "arrivals"):
        until(lambda dag=dag: _unpaused(stack, dag), f"{dag} is not there")  # type: ignore[misc]
    settle(stack, MIN_RECORDS)
    return stack


def _unpaused(stack: Stack, dag: str) -> bool:
    return stack.api.patch(f"dags/{dag}", {"is_paused": False})["is_paused"] is False


def test_records_start_a_run_and_its_checkpoint_starts_the_pipeline_behind_it(harbours: Stack) -> None:
    (first,), (second,) = (runs(harbours, dag) for dag in ("arrivals", "berths"))
    for run in (first, second):
        assert (run["run_type"], run["logical_date"], run["data_interval_end"]) == ("asset_triggered", None, None)
    assert second["run_after"] > first["run_after"]
    (lag,), (completed,) = (events(harbours, f"arrivals/{kind}") for kind in ("lag", "completed"))
    assert lag["extra"]["payload"] == {"pipeline": "arrivals", "unread": MIN_RECORDS}
    assert (completed["partition_key"], completed["extra"]["id"]) == (None, "chk-1")
    used = harbours.api.get(f"dags/berths/dagRuns/{second['dag_run_id']}/upstreamAssetEvents")["asset_events"]
    assert [(event["name"], event["extra"]["id"]) for event in used] == [("arrivals/completed", "chk-1")]


def test_fewer_records_start_a_run_when_one_has_waited(harbours: Stack) -> None:
    before = len(runs(harbours, "arrivals"))
    sent = time.monotonic()
    send(harbours, MIN_RECORDS - 1)
    until(lambda: len(runs(harbours, "arrivals")) > before, "no run")
    assert time.monotonic() - sent > MAX_WAIT - 2
    settle(harbours, 2 * MIN_RECORDS - 1)


@contextmanager
def tasks_held(stack: Stack) -> Iterator[None]:
    """No task begins in the block, so a run that has tasks left stays active."""
    pool = "pools/default_pool?update_mask=slots"
    slots = stack.api.get("pools/default_pool")["slots"]
    stack.api.patch(pool, {"pool": "default_pool", "slots": 0})
    try:
        yield
    finally:
        stack.api.patch(pool, {"pool": "default_pool", "slots": slots})


def test_records_that_come_during_a_run_start_one_more_and_not_one_each(harbours: Stack) -> None:
    before, total = len(runs(harbours, "arrivals")), ships(harbours, "arrivals")

    def has_planned() -> bool:
        path = f"dags/arrivals/dagRuns/{first['dag_run_id']}/taskInstances/plan"
        return bool(harbours.api.get(path)["state"] == "success")

    send(harbours, MIN_RECORDS - 1)
    # No event has started this run, so only the run itself keeps the next event back.
    first = harbours.api.post("dags/arrivals/dagRuns", {"logical_date": None})
    until(has_planned, "no plan", every=0.05)
    with tasks_held(harbours):
        for _ in range(6):
            send(harbours, MIN_RECORDS)
        time.sleep(3)  # the trigger looks every second
        (active,) = runs(harbours, "arrivals")[before:]
        assert active["state"] == "running", "it has tasks left, and no other run has begun"
    settle(harbours, total + 7 * MIN_RECORDS - 1)
    assert len(runs(harbours, "arrivals")) - before == 2, "one for all that came during the run"
    assert len(events(harbours, "arrivals/lag")) == len(runs(harbours, "arrivals")) - 1, "one event for each other run"
    assert all(c.sealed.facts.records for c in checkpoints(harbours, "arrivals")), "no run found nothing to read"


def test_a_triggerer_that_was_killed_goes_on_where_it_was(harbours: Stack, variables: Any, project: Any) -> None:
    total, before = ships(harbours, "arrivals"), len(events(harbours, "arrivals/lag"))
    killed = [process for process in _processes(project) if "triggerer" in " ".join(process.info["cmdline"] or ())]
    assert killed
    for process in killed:
        with suppress(psutil.NoSuchProcess):  # a child may end with its parent
            process.kill()
    psutil.wait_procs(killed, timeout=30)
    send(harbours, MIN_RECORDS)
    _tidemark(variables, "up")
    settle(harbours, total + MIN_RECORDS)
    assert len(events(harbours, "arrivals/lag")) == before + 1


def test_records_that_come_while_the_dag_is_paused_start_a_run_when_it_is_on_again(harbours: Stack) -> None:
    total, before = ships(harbours, "arrivals"), len(runs(harbours, "arrivals"))
    harbours.api.patch("dags/arrivals", {"is_paused": True})
    send(harbours, MIN_RECORDS)
    time.sleep(5)
    assert len(runs(harbours, "arrivals")) == before
    harbours.api.patch("dags/arrivals", {"is_paused": False})
    settle(harbours, total + MIN_RECORDS)


def test_a_minimum_pause_is_kept_without_a_retry(harbours: Stack) -> None:
    """The berths pause for half a minute, which is longer than a task waits: the scheduler runs it again."""
    coordinator = open_context(harbours.settings).coordinator("berths")
    made = checkpoints(harbours, "berths")
    sealed = [coordinator.objects.outcome(c.plan.slot, c.sealed.attempt) for c in made]
    pauses = [b.plan.planned_at_ms - a.at_ms for a, b in zip(sealed, made[1:], strict=False) if a is not None]
    assert len(pauses) == len(made) - 1 >= 3
    assert min(pauses) >= 30_000
    plans = [
        harbours.api.get(f"dags/berths/dagRuns/{run['dag_run_id']}/taskInstances/plan")
        for run in runs(harbours, "berths")
    ]
    assert {(plan["state"], plan["try_number"]) for plan in plans} == {("success", 1)}
    logs = ["".join(harbours.api.log_tail("berths", run["dag_run_id"], "plan", 1)) for run in runs(harbours, "berths")]
    assert any("the minimum pause after" in log for log in logs)


def test_a_schedule_of_seconds_has_intervals_of_seconds(stack: Stack) -> None:
    topics = Topics(stack.settings.kafka_address)
    topics.make("tides", partitions=2)
    until(lambda: _unpaused(stack, "tides"), "the DAG is not there")
    try:
        until(lambda: [r["state"] for r in runs(stack, "tides")].count("success") >= 4, "no four runs")
    finally:
        stack.api.patch("dags/tides", {"is_paused": True})
    for run in runs(stack, "tides"):
        start, end = (datetime.fromisoformat(run[f"data_interval_{side}"]) for side in ("start", "end"))
        assert (run["run_type"], end - start, end.timestamp() % 10) == ("scheduled", timedelta(seconds=10), 0)
    made = checkpoints(stack, "tides")
    assert [c.plan.interval.end_ms % 10_000 for c in made if c.plan.interval is not None] == [0] * len(made)
    assert len(made) >= 4
