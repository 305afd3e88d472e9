"""Airflow's own backfill from a savepoint: all runs have one conf, the first restores, the others go on."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.support.airflow import DAY, AirflowPipeline
from tests.support.airflow_disk import AirflowDiskPipeline
from tidemark.coordinator.checkpoints.job import ignore_step
from tidemark.coordinator.records.states import Restored
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.coordinator.recovery.savepoints import Savepoints
from tidemark.model.retention.savepoint import SavepointRequest
from tidemark.operations import backfill

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("default")]
DagRun = Callable[..., Any]
CONF = {"savepoint": "sp", "restore_id": "r1"}


@pytest.fixture
def four_days(world: AirflowPipeline, dag_run: DagRun, monkeypatch: pytest.MonkeyPatch) -> AirflowPipeline:
    """A checkpoint for each of four days, and a savepoint of the second one; on disk, because restores verify files."""
    world = AirflowDiskPipeline()
    monkeypatch.setattr("tidemark.context.open_context", world.open_context)
    for day in range(4):
        world.drive("a", 1, day=day)
        assert str(dag_run(day=day + 1).state) == "success"
    request = SavepointRequest(name="sp", owner="me", origin="test", checkpoint=2)
    Savepoints(world.open_context().coordinator("trips")).create(request)
    return world


def line(world: AirflowPipeline) -> list[tuple[str, str]]:
    """The live line, oldest first: checkpoints, and their timelines."""
    return [(c.plan.name, c.plan.slot.timeline) for c in world.checkpoints()]


def test_the_first_run_restores_and_the_others_go_on(four_days: AirflowPipeline, dag_run: DagRun) -> None:
    assert str(dag_run(day=3, conf=CONF).state) == "success"
    assert line(four_days) == [("chk-1", "t1"), ("chk-2", "t1"), ("chk-5", "t2")]
    assert four_days.buses() == {"a": (3, 3)}
    assert str(dag_run(day=4, conf=CONF).state) == "success"
    assert line(four_days)[2:] == [("chk-5", "t2"), ("chk-6", "t2")]
    assert four_days.buses() == {"a": (4, 4)}
    assert str(dag_run(day=4, conf=CONF).state) == "success", "a cleared run finds its interval covered"
    assert len(line(four_days)) == 4
    assert str(dag_run(day=3, conf={**CONF, "restore_id": "r2"}).state) == "success"
    assert line(four_days)[2:] == [("chk-7", "t3")], "another id restores again"


def test_a_later_run_that_comes_first_reads_for_all_and_the_earlier_one_is_covered(
    four_days: AirflowPipeline, dag_run: DagRun
) -> None:
    assert str(dag_run(day=4, conf=CONF).state) == "success"
    late = dag_run(day=3, conf=CONF)
    assert {ti.task_id: str(ti.state) for ti in late.get_task_instances()} == {
        "plan": "success",
        "fold": "skipped",
        "validate": "skipped",
        "complete": "skipped",
    }
    assert line(four_days)[2:] == [("chk-5", "t2")]
    assert four_days.buses() == {"a": (4, 4)}


def test_a_run_that_died_after_the_restore_is_repeated_without_another_one(
    four_days: AirflowPipeline, dag_run: DagRun
) -> None:
    from tests.airflow.test_dag_runs import broken
    from tidemark.errors import BrokerError

    four_days.accidents = [("plan", broken(BrokerError))]
    assert str(dag_run(day=3, conf=CONF).state) == "success"
    assert line(four_days)[2:] == [("chk-6", "t2")], "the id that the dead try took stays unused"
    assert four_days.open_context().coordinator("trips").timelines.names() == ["t1", "t2"]


def test_of_two_runs_that_restore_at_once_one_has_restored(
    four_days: AirflowPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = RestoreRequest(savepoint="sp", request="r1")
    others: list[Restored | None] = []

    def other_run(step: str, moment: str) -> None:
        if (step, moment) == ("closing", "before"):
            monkeypatch.setattr(four_days, "crash", ignore_step)
            others.append(backfill.restore_once(four_days.open_context(), "trips", request))

    monkeypatch.setattr(four_days, "crash", other_run)
    assert backfill.restore_once(four_days.open_context(), "trips", request) is None
    assert [other and other.genesis.timeline for other in others] == ["t2"]
    assert four_days.open_context().coordinator("trips").timelines.names() == ["t1", "t2"]


@pytest.mark.parametrize("conf", [{"savepoint": "sp"}, {"restore_id": "r1"}])
def test_one_without_the_other_is_refused(
    four_days: AirflowPipeline, dag_run: DagRun, conf: Any, caplog: Any, capfd: Any
) -> None:
    assert str(dag_run(day=3, conf=conf).state) == "failed"
    assert "savepoint and restore_id go together" in caplog.text + "".join(capfd.readouterr())
    assert four_days.open_context().coordinator("trips").timelines.names() == ["t1"]


@pytest.mark.parametrize(("behavior", "queued"), [("none", [2]), ("failed", [1, 2]), ("completed", [0, 1, 2])])
def test_which_runs_airflow_makes_and_with_which_conf(
    world: AirflowPipeline, trips: Any, behavior: str, queued: list[int]
) -> None:
    from airflow.models.backfill import Backfill, ReprocessBehavior, _create_backfill
    from airflow.models.dagrun import DagRun as Run
    from airflow.utils.session import create_session
    from airflow.utils.state import DagRunState
    from sqlalchemy import select

    base = datetime(2024, 6, {"none": 1, "failed": 11, "completed": 21}[behavior], tzinfo=DAY.tzinfo)
    days = [base + timedelta(days=n) for n in range(3)]
    for day in days[:2]:
        trips.test(logical_date=day, run_after=day + timedelta(days=1))
    with create_session() as session:
        runs = session.scalars(select(Run).where(Run.logical_date.in_(days[:2])).order_by(Run.logical_date)).all()
        runs[0].state, runs[1].state = DagRunState.SUCCESS, DagRunState.FAILED
    made = _create_backfill(
        dag_id="trips",
        from_date=days[0],
        to_date=days[2],
        max_active_runs=1,
        reverse=False,
        dag_run_conf=CONF,
        triggering_user_name="me",
        reprocess_behavior=ReprocessBehavior(behavior),
    )
    with create_session() as session:
        wanted = select(Run).where(Run.logical_date.in_(days), Run.state == DagRunState.QUEUED)
        found = session.scalars(wanted.order_by(Run.logical_date)).all()
        assert [(r.logical_date and days.index(r.logical_date), r.conf) for r in found] == [(n, CONF) for n in queued]
        assert all(r.logical_date and r.data_interval_end == r.logical_date + timedelta(days=1) for r in found[-1:])
        for run in found:
            run.state = DagRunState.SUCCESS
        session.get(Backfill, made.id).completed_at = days[2]  # type: ignore[union-attr]
