"""Airflow's own options of a checkpoint DAG: they are added to Tidemark's, and replace none of them."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.airflow.conftest import HERE
from tests.airflow.test_dag_runs import last_abort
from tests.airflow.user_callbacks import CALLS
from tests.support.airflow import AirflowPipeline
from tidemark.errors import DeclarationError, EngineError
from tidemark.model.checkpoint.failure import FailureReason
from tidemark.model.checkpoint.manifest import Verdict

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("default"), pytest.mark.usefixtures("airflow_home")]
Make = Callable[..., Any]


@pytest.fixture
def make() -> Make:
    """`make(tags=["a"])`: the DAG of the trips with options."""

    def create(**options: Any) -> Any:
        from tests.airflow.pipelines.trips import trips
        from tidemark.airflow import checkpoint_dag

        return checkpoint_dag(trips, **options)

    return create


def test_tags_are_added_to_those_by_which_the_pages_find_the_dag(make: Make) -> None:
    assert set(make(tags=["team-a", "trips"]).tags) == {"tidemark", "trips", "team-a"}
    with pytest.raises(DeclarationError, match="tags='team-a'") as caught:
        make(tags="team-a")
    assert caught.value.next == "give a list: tags=['team-a']."


def test_all_four_tasks_are_in_the_pool(make: Make) -> None:
    assert {task.pool for task in make(pool="lake").tasks} == {"lake"}
    assert {task.pool for task in make(default_args={"pool": "lake", "pool_slots": 2}).tasks} == {"lake"}
    assert {task.pool for task in make(default_args={"pool": "lake"}, pool="sea").tasks} == {"sea"}
    assert {task.pool for task in make().tasks} == {"default_pool"}


def test_default_args_reach_every_task_and_leave_the_retries_alone(make: Make) -> None:
    plain, dag = make(restart="fixed-delay"), make(
        restart="fixed-delay", default_args={"owner": "ann", "queue": "big", "priority_weight": 7, "run_as_user": "ann"}
    )  # fmt: skip
    for before, task in zip(plain.tasks, dag.tasks, strict=True):
        assert (task.owner, task.queue, task.priority_weight, task.run_as_user) == ("ann", "big", 7, "ann")
        for name in ("retries", "retry_delay", "max_retry_delay", "execution_timeout", "trigger_rule", "outlets"):
            assert getattr(task, name) == getattr(before, name), name


def test_default_args_that_break_the_protocol_are_refused_in_three_lines(make: Make) -> None:
    from tidemark.airflow.dag_options import PROTECTED

    assert {"depends_on_past", "trigger_rule", "max_active_runs", "retries", "execution_timeout"} <= set(PROTECTED)
    for name, instead in PROTECTED.items():
        with pytest.raises(DeclarationError) as caught:
            make(default_args={"owner": "ann", name: True})
        lines = [f"default_args may not set {name}", "Safe: nothing was written.", f"Next: {instead}."]
        assert str(caught.value).splitlines() == lines


def test_an_argument_that_no_task_takes_is_refused(make: Make) -> None:
    with pytest.raises(DeclarationError, match="no task of Airflow takes 'quue'"):
        make(default_args={"quue": "big"})


def test_the_page_and_the_most_tasks_at_once(make: Make) -> None:
    dag = make(doc_md="Call Ann.", max_active_tasks=2)
    assert dag.doc_md.startswith("### Checkpoints of `trips`") and dag.doc_md.endswith("\nCall Ann.")
    assert dag.max_active_tasks == 2
    with pytest.raises(DeclarationError, match="max_active_tasks=0"):
        make(max_active_tasks=0)
    with pytest.raises(DeclarationError, match="is no callback"):
        make(on_failure="ann@example.org")


def test_a_minimum_pause_does_not_count_against_the_timeout_of_a_run() -> None:
    from dataclasses import replace

    from tests.airflow.pipelines.trips import trips
    from tidemark.airflow import checkpoint_dag

    paused = checkpoint_dag(replace(trips, min_pause=timedelta(hours=1)))
    assert paused.dagrun_timeout == timedelta(minutes=30) + timedelta(hours=1)


@pytest.fixture
def called_dag(world: AirflowPipeline) -> Iterator[Any]:
    """The DAG of the trips with callbacks of a user; the plugin's listener is registered, as in the scheduler."""
    from airflow.dag_processing.dagbag import DagBag
    from airflow.listeners.listener import get_listener_manager

    from tidemark.airflow.ui.plugin import TidemarkPlugin

    manager = get_listener_manager()
    for listener in TidemarkPlugin.listeners:
        manager.add_listener(listener)
    CALLS.clear()
    yield DagBag(HERE / "dags").dags["trips_called"]
    manager.clear()


def is_paused(by_hand: bool | None = None) -> bool:
    """Whether the DAG is paused; or makes it so."""
    from airflow.models.dag import DagModel
    from airflow.utils.session import create_session

    with create_session() as session:
        model = session.get(DagModel, "trips_called")
        assert model is not None
        if by_hand is not None:
            model.is_paused = by_hand
        return bool(model.is_paused)


def test_callbacks_of_a_user_are_called_after_those_that_count_failures(
    world: AirflowPipeline, called_dag: Any
) -> None:
    world.drive("a", 3)
    world.accidents = [("attempt", EngineError("it broke", next="mend it"))]
    assert called_dag.test(logical_date=None).state == "failed"
    assert CALLS == ["success plan", "failure fold", "broken", "run failure"]
    assert last_abort(world.open_context()).failure.reason is FailureReason.ENGINE_ERROR, "Tidemark's has aborted it"
    CALLS.clear()
    assert called_dag.test(logical_date=None).state == "success"
    assert " ".join(CALLS) == "success plan success fold success validate success complete run success"
    assert world.buses() == {"a": (1, 3)}


def test_with_callbacks_too_only_failed_checkpoints_pause_the_schedule(world: AirflowPipeline, called_dag: Any) -> None:
    from tidemark.operations import stop

    world.drive("a", 3)
    called_dag.test(logical_date=None, run_conf={"max_record": 1})
    is_paused(by_hand=False)  # Airflow has made it paused
    for _ in range(4):
        assert called_dag.test(logical_date=None, run_conf={"max_record": 1}).state == "failed"
    stop.stop(world.open_context(), "trips", "disk swap")
    assert [called_dag.test(logical_date=None).state for _ in range(4)] == ["failed"] * 4
    stop.resume(world.open_context(), "trips", "done")
    assert not is_paused()
    world.verdict = Verdict(passed=False)
    seen = []
    for _ in range(3):
        assert called_dag.test(logical_date=None).state == "failed"
        seen.append(is_paused())
    assert seen == [False, False, True]


def test_the_options_are_those_of_the_docs(airflow_home: Path) -> None:
    from tidemark.airflow.checkpoint_dags import DagOptions, _Chosen

    assert set(DagOptions.__annotations__) == set(_Chosen.__dataclass_fields__)


FORMS = ("close", "erase", "fork", "hold", "patch", "promote", "redrive", "restore", "resume", "stop", "transform")
KINDS = ("backfill", "compaction", "retention", "savepoint", "watch", *FORMS)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_dag_takes_default_args_tags_and_a_pool(kind: str) -> None:
    import tidemark.airflow
    from tests.airflow.pipelines.trips import trips

    factory = getattr(tidemark.airflow, f"{kind}_dag")
    given = trips if kind == "compaction" else [trips]
    dag = factory(given, default_args={"owner": "ann", "queue": "big"}, tags=["team-a"], pool="lake")
    assert {(task.owner, task.queue, task.pool) for task in dag.tasks} == {("ann", "big", "lake")}
    assert set(dag.tags) == {"tidemark", "trips", "team-a"}
    before = factory(given)
    for one, other in zip(before.tasks, dag.tasks, strict=True):
        assert (one.task_id, one.retries, one.trigger_rule) == (other.task_id, other.retries, other.trigger_rule)
    with pytest.raises(DeclarationError, match="default_args may not set depends_on_past"):
        factory(given, default_args={"depends_on_past": True})
    with pytest.raises(TypeError, match="poool"):
        factory(given, poool="lake")


@pytest.mark.parametrize("kind", FORMS)
def test_a_dag_with_a_form_is_named_after_its_last_task_or_by_its_option(kind: str) -> None:
    import tidemark.airflow
    from tests.airflow.pipelines.trips import trips

    factory = getattr(tidemark.airflow, f"{kind}_dag")
    assert (factory([trips]).dag_id, factory([trips]).tasks[-1].task_id) == (kind, kind)
    assert factory([trips], dag_id="mine").dag_id == "mine"
    with pytest.raises(DeclarationError, match=rf"{kind}_dag\(\) without pipelines"):
        factory([])
