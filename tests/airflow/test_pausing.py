"""Which failed runs pause the schedule: those whose checkpoints failed, more in a row than the pipeline tolerates (D6).

Runs by `dag.test()`, with the plugin's listener among Airflow's; the trips tolerate two failed checkpoints.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.airflow.test_dag_runs import broken
from tests.support.airflow import AirflowPipeline
from tidemark.coordinator.records.states import NothingOpen
from tidemark.errors import BrokerError, EngineError, RecordRefusedError
from tidemark.model.checkpoint.manifest import Verdict
from tidemark.model.checkpoint.store_objects import AbortRecord
from tidemark.operations import checkpoints, stop

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("default")]
DagRun = Callable[..., Any]


@pytest.fixture(autouse=True)
def listening(world: AirflowPipeline, trips: Any) -> Iterator[None]:
    """The listener is registered, as the plugin registers it in the scheduler, and the DAG is not paused."""
    from airflow.listeners.listener import get_listener_manager

    from tidemark.airflow.ui.plugin import TidemarkPlugin

    manager = get_listener_manager()
    for listener in TidemarkPlugin.listeners:
        manager.add_listener(listener)
    trips.test(logical_date=None, run_conf={"max_record": 1})  # it is in the database now
    paused(by_hand=False)
    yield
    manager.clear()


def paused(by_hand: bool | None = None) -> bool:
    """Whether the DAG of the trips is paused; or makes it so."""
    from airflow.models.dag import DagModel
    from airflow.utils.session import create_session

    with create_session() as session:
        model = session.get(DagModel, "trips")
        assert model is not None
        if by_hand is not None:
            model.is_paused = by_hand
        return bool(model.is_paused)


def aborts(world: AirflowPipeline) -> list[AbortRecord]:
    """Of the plans that have failed since the newest checkpoint."""
    found = world.open_context().coordinator("trips").open_plan()
    assert isinstance(found, NothingOpen)
    return list(found.aborted)


def refused(world: AirflowPipeline, dag_run: DagRun) -> Any:
    """A run whose candidate the gate refuses."""
    world.verdict = Verdict(passed=False)
    run = dag_run(day=1)
    world.verdict = Verdict()
    return run


def test_forms_with_slips_stops_and_declined_checkpoints_do_not_pause_it(
    world: AirflowPipeline, dag_run: DagRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.drive("a", 3)
    for conf in ({"max_record": 1}, {"accept_los": True}, {"untill": "noon"}):
        assert dag_run(day=None, conf=conf).state == "failed"
    stop.stop(world.open_context(), "trips", "disk swap")
    assert [dag_run(day=1).state for _ in range(3)] == ["failed"] * 3
    stop.resume(world.open_context(), "trips", "done")
    with monkeypatch.context() as patch:
        patch.setattr(world, "crash", declining(world))
        assert [dag_run(day=1).state for _ in range(3)] == ["failed"] * 3
    assert [a.failure.reason.value for a in aborts(world)] == ["DECLINED"] * 3
    assert not paused()
    assert dag_run(day=1).state == "success"


def declining(world: AirflowPipeline) -> Callable[[str, str], None]:
    """What happens at each step where an operator gives the open plan up while fold reads."""

    def crash(step: str, moment: str) -> None:
        if (step, moment) == ("read", "before"):
            opened = world.open_context()
            plan = checkpoints.find_pending(opened, "trips")
            assert plan is not None
            checkpoints.decline(opened, "trips", plan)

    return crash


def test_a_broker_that_is_away_while_runs_plan_does_not_pause_it(
    world: AirflowPipeline, dag_run: DagRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise broken(BrokerError)

    monkeypatch.setattr(type(world.log), "partitions", away)
    assert [dag_run(day=1).state for _ in range(4)] == ["failed"] * 4
    assert not paused(), "nothing was planned, so no checkpoint has failed"


@pytest.mark.parametrize("how", ["the gate", "every try", "dead letters"])
def test_one_failed_checkpoint_more_than_tolerated_pauses_it(world: AirflowPipeline, dag_run: DagRun, how: str) -> None:
    world.drive(None if how == "dead letters" else "a", 3)
    for count in (1, 2, 3):
        if how == "every try":
            world.accidents = [("read", broken(EngineError))] * 3
        run = refused(world, dag_run) if how == "the gate" else dag_run(day=1)
        assert run.state == "failed"
        assert paused() == (count == 3)


def test_a_run_that_says_nothing_new_does_not_pause_it_again(world: AirflowPipeline, dag_run: DagRun) -> None:
    world.drive("a", 3)
    for _ in range(3):
        refused(world, dag_run)
    assert paused()
    paused(by_hand=False)
    assert dag_run(day=None, conf={"max_record": 1}).state == "failed"
    assert not paused(), "three checkpoints have failed in a row, but this run has not failed one"
    assert dag_run(day=1).state == "success"
    for _ in range(2):
        world.drive("a", 3)
        refused(world, dag_run)
    assert not paused(), "a completed checkpoint begins the count anew"


def test_a_run_that_timed_out_counts_the_checkpoint_that_it_was_at(world: AirflowPipeline, dag_run: DagRun) -> None:
    from airflow.models.dagrun import DagRun as Row
    from airflow.utils.session import create_session
    from airflow.utils.state import TaskInstanceState
    from sqlalchemy import select

    from tidemark.airflow.ui.pausing import on_dag_run_failed

    world.drive("a", 3)
    for _ in range(2):
        refused(world, dag_run)
    run = refused(world, dag_run)
    paused(by_hand=False)

    def ended(fold: TaskInstanceState, msg: str) -> bool:
        with create_session() as session:
            row = session.scalar(select(Row).where(Row.run_id == run.run_id))
            assert row is not None
            for task, state in (("fold", fold), ("validate", TaskInstanceState.SKIPPED)):
                instance = row.get_task_instance(task, session=session)
                assert instance is not None
                instance.state = state
            session.flush()
            on_dag_run_failed(row, msg)
        return paused()

    assert not ended(TaskInstanceState.SUCCESS, "timed_out"), "what was sealed has not expired"
    assert not ended(TaskInstanceState.SKIPPED, "Dag Run's state was manually set to `failed`.")
    assert ended(TaskInstanceState.SKIPPED, "timed_out"), "two before it, and its own"


def test_a_count_of_an_earlier_try_of_a_cleared_run_is_passed_over(world: AirflowPipeline, dag_run: DagRun) -> None:
    from airflow.models.dagrun import DagRun as Row
    from airflow.utils.session import create_session
    from sqlalchemy import select

    from tidemark.airflow.ui.pausing import on_dag_run_failed

    world.drive("a", 3)
    run = [refused(world, dag_run) for _ in range(3)][-1]
    paused(by_hand=False)
    with create_session() as session:
        row = session.scalar(select(Row).where(Row.run_id == run.run_id))
        assert row is not None
        validate = row.get_task_instance("validate", session=session)
        assert validate is not None
        validate.start_date = datetime.now(UTC)
        session.flush()
        on_dag_run_failed(row, "task_failure")
    assert not paused()


def test_a_plan_that_waits_because_of_a_refused_record_counts_once(world: AirflowPipeline, dag_run: DagRun) -> None:
    world.drive("a", 3)
    for _ in range(3):
        world.accidents = [("read", RecordRefusedError("too large", next="tidemark sink skip"))]
        assert dag_run(day=1).state == "failed"
    assert not paused(), "one checkpoint, however often its record was refused"
    assert dag_run(day=1).state == "success"


def test_it_pauses_the_schedule_behind_as_many_failures_as_are_tolerated(
    world: AirflowPipeline, dag_run: DagRun
) -> None:
    world.drive("a", 3)
    for _ in range(2):
        assert refused(world, dag_run).state == "failed"
    assert not paused()
    world.accidents = [("read", RecordRefusedError("too large", next="tidemark sink skip"))]
    assert dag_run(day=1).state == "failed"
    assert paused()
