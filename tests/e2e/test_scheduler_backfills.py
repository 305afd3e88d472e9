"""Airflow's own backfills that restore first, by the real scheduler: cancelled, several at once, and backwards."""

import json
import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from devstack.demo.dag_runs import Dag
from devstack.demo.native import CONFLICT, Backfill
from devstack.demo.topic_loader import TopicLoader
from tests.e2e.conftest import Stack
from tests.e2e.test_scheduler import Sent
from tidemark.cli.airflow_api import AirflowError, Json
from tidemark.context import open_context
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.retention.savepoint import SavepointRequest
from tidemark.operations import checkpoints, reads, savepoints
from tidemark.ports import PlanRequest

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.filterwarnings("default"), pytest.mark.timeout(900)]
DAY, DAYS, SAVED = datetime(2024, 3, 1, tzinfo=UTC), 4, 2
"""The savepoint is that of the second day; the other two are backfilled."""
CREATED_WITHIN = 120.0
"""Seconds, for a database that is locked."""


def crossing(row: int) -> Sent:
    """Every day each ferry crosses once, an hour after the one before it."""
    day, ferry = divmod(row, 4)
    at = DAY + timedelta(days=day, hours=ferry)
    told = {"ferry": "abcd"[ferry], "cars": 3 * row, "harbour": f"harbour {row}", "ended_at": at.isoformat()}
    return Sent(row, "abcd"[ferry].encode(), json.dumps(told).encode(), int(at.timestamp() * 1000))


CROSSINGS = [crossing(row) for row in range(4 * DAYS)]


def oracle(until_ms: int) -> dict[str, tuple[int, int, str]]:
    """(crossings, cars, latest harbour) per ferry, of what was sent with a timestamp before a time."""
    found: dict[str, tuple[int, int, str]] = {}
    for told in (json.loads(sent.value) for sent in CROSSINGS if sent.timestamp_ms < until_ms):
        crossings, cars, _ = found.get(told["ferry"], (0, 0, ""))
        found[told["ferry"]] = (crossings + 1, cars + told["cars"], told["harbour"])
    return found


def state(stack: Stack, checkpoint: int) -> dict[str, tuple[int, int, str]]:
    table = reads.read_state(open_context(stack.settings), "ferries", "ferries", checkpoint=checkpoint)
    return {row["ferry"]: (row["crossings"], row["cars"], row["harbour"]) for row in table.to_pylist()}


def timelines(stack: Stack) -> list[str]:
    return open_context(stack.settings).coordinator("ferries").timelines.names()


def own_line(stack: Stack, timeline: str) -> list[Checkpoint]:
    """The checkpoints of the live timeline, oldest first: checked for gaps, doubles and wrong states."""
    whole = list(reversed(reads.list_checkpoints(open_context(stack.settings), "ferries")))
    for parent, child in pairwise(whole):
        assert child.plan.parent == parent.id
        assert {tp: r.start for tp, r in child.plan.ranges.items()} == {
            tp: r.end for tp, r in parent.plan.ranges.items()
        }
    assert sum(r.end for r in whole[-1].plan.ranges.values()) == len(CROSSINGS)
    assert [c.id for c in whole[:SAVED]] == [1, 2]
    own = whole[SAVED:]
    places = [(c.plan.slot.timeline, c.plan.slot.sequence) for c in own]
    assert places == [(timeline, 2 + n) for n in range(len(own))], "the genesis has the first place"
    for made in own:
        assert state(stack, made.id) == oracle(made.plan.logical_time_ms), made.plan.name
    return own


class Backfilling:
    """The days after the savepoint, as Airflow backfills them."""

    def __init__(self, stack: Stack) -> None:
        self.api, self.dag = stack.api, Dag(api=stack.api, id="ferries")
        self.runs = Backfill(
            api=stack.api, dag="ferries", first=DAY + timedelta(days=SAVED), last=DAY + timedelta(days=DAYS - 1), runs=2
        )

    def create(self, **asked: Any) -> int:
        """A backfill of a paused DAG: the scheduler sees no half of it (see `Backfill.start`)."""
        self.dag.pause(True)
        deadline = time.monotonic() + CREATED_WITHIN
        while True:
            try:
                return int(self.api.post("backfills", self.body(**asked))["id"])
            except AirflowError as error:
                # Where SQLite was locked, Airflow leaves a backfill that it told nobody of, or forgets a cancel.
                if error.status != CONFLICT or time.monotonic() > deadline:
                    raise
                self.end_active()

    def body(self, restore_id: str = "r1", **asked: Any) -> Json:
        return {
            "dag_id": "ferries",
            "from_date": self.runs.first.isoformat(),
            "to_date": self.runs.last.isoformat(),
            "dag_run_conf": {"savepoint": "sp", "restore_id": restore_id},
            **asked,
        }

    def would_run(self, behavior: str) -> int:
        """How many runs Airflow would make."""
        asked = self.body(reprocess_behavior=behavior, run_backwards=False)
        return int(self.api.post("backfills/dry_run", asked)["total_entries"])

    def states(self) -> list[str]:
        return [run["state"] for run in self.runs.dag_runs()]

    def succeed(self, backfill: int) -> list[Json]:
        """The runs, once all have succeeded."""
        self.dag.pause(False)
        found = self.runs.wait(backfill)
        self.end(backfill)
        return found

    def end_active(self) -> None:
        for found in self.api.get("backfills", dag_id="ferries")["backfills"]:
            if found["completed_at"] is None:
                self.end(found["id"])
        time.sleep(1)

    def end(self, backfill: int) -> None:
        """Cancels it; Airflow notes by itself, half a minute late, that one has ended."""
        try:
            self.api.put(f"backfills/{backfill}/cancel")
        except AirflowError as error:
            assert error.status == CONFLICT


@pytest.fixture(scope="module")
def backfilling(stack: Stack) -> Backfilling:
    """Two days are checkpointed, and the second one is a savepoint; nothing has restored it."""
    TopicLoader(stack.settings.kafka_address, "ferries", partitions=2).load(CROSSINGS)
    context = open_context(stack.settings)
    for day in range(1, SAVED + 1):
        end = DAY + timedelta(days=day)
        checkpoints.run_once(context, "ferries", PlanRequest(origin="test", interval_end=end, until_interval_end=True))
    savepoints.open_savepoints(context, "ferries").create(
        SavepointRequest(name="sp", owner="me", origin="test", checkpoint=SAVED)
    )
    return Backfilling(stack)


@pytest.fixture(scope="module")
def cancelled(backfilling: Backfilling) -> list[Json]:
    """The runs of a backfill that was cancelled while its DAG was paused."""
    one = backfilling.create(reprocess_behavior="none", run_backwards=False, max_active_runs=2)
    assert backfilling.states() == ["queued"] * 2
    backfilling.end(one)
    return backfilling.runs.dag_runs()


def test_a_cancelled_backfill_fails_the_runs_that_wait_and_restores_nothing(
    stack: Stack, backfilling: Backfilling, cancelled: list[Json]
) -> None:
    assert [(run["state"], run["start_date"]) for run in cancelled] == [("failed", None)] * 2
    assert {behavior: backfilling.would_run(behavior) for behavior in ("none", "failed", "completed")} == {
        "none": 0, "failed": 2, "completed": 2,
    }  # fmt: skip
    assert timelines(stack) == ["t1"]


@pytest.fixture(scope="module")
def at_once(backfilling: Backfilling, cancelled: list[Json]) -> list[Json]:
    """The same id again, both runs at the same time: what was cancelled is made good."""
    one = backfilling.create(reprocess_behavior="failed", run_backwards=False, max_active_runs=2)
    runs = backfilling.succeed(one)
    assert [run["dag_run_id"] for run in runs] == [run["dag_run_id"] for run in cancelled]
    return runs


def test_runs_at_the_same_time_restore_once_and_make_one_line(stack: Stack, at_once: list[Json]) -> None:
    assert max(run["start_date"] for run in at_once) < min(run["end_date"] for run in at_once), "not at once"
    assert timelines(stack) == ["t1", "t2"]
    own = own_line(stack, "t2")
    assert {c.plan.origin for c in own} <= {run["dag_run_id"] for run in at_once}
    told = [line for run in at_once for line in _plan_logs(stack, run)]
    assert sum("restored: timeline t2 is live (restore id r1)" in line for line in told) == 1
    assert sum("was restored before (restore id r1)" in line for line in told) >= 1


def _plan_logs(stack: Stack, run: Json) -> list[str]:
    """What all tries of `plan` said."""
    where = f"dags/ferries/dagRuns/{run['dag_run_id']}/taskInstances/plan/tries"
    tries = stack.api.get(where)["task_instances"]
    return [line for t in tries for line in stack.api.log_tail("ferries", run["dag_run_id"], "plan", t["try_number"])]


def test_runs_that_succeeded_are_repeated_backwards_and_the_last_day_reads_for_all(
    stack: Stack, backfilling: Backfilling, at_once: list[Json]
) -> None:
    assert [backfilling.would_run(behavior) for behavior in ("none", "failed", "completed")] == [0, 0, 2]
    one = backfilling.create(restore_id="r2", reprocess_behavior="completed", run_backwards=True, max_active_runs=1)
    earlier, last = backfilling.succeed(one)
    assert [run["dag_run_id"] for run in (earlier, last)] == [run["dag_run_id"] for run in at_once]
    assert [run["conf"]["restore_id"] for run in (earlier, last)] == ["r2", "r2"]
    assert timelines(stack) == ["t1", "t2", "t3"]
    assert [c.plan.origin for c in own_line(stack, "t3")] == [last["dag_run_id"]]
    tasks = stack.api.get(f"dags/ferries/dagRuns/{earlier['dag_run_id']}/taskInstances")["task_instances"]
    assert {t["task_id"]: t["state"] for t in tasks} == {
        "plan": "success", "fold": "skipped", "validate": "skipped", "complete": "skipped",
    }  # fmt: skip
