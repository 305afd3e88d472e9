"""Pauses a DAG when more checkpoints have failed in a row than its pipeline tolerates.

Airflow's own `max_consecutive_failed_dag_runs` counts every failed run: a mistyped form, a run of a stopped pipeline, a
checkpoint that an operator declined. This listener uses the coordinator's count instead. Tasks have no access to
Airflow's database and cannot pause their DAG, so they store the count in their task state; the scheduler calls this
listener after each failed run.
"""

import json
import logging
from typing import TYPE_CHECKING, Any

from airflow.listeners import hookimpl

from tidemark.airflow.task_names import FAILURE_COUNT, FOLD, PLAN

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun
    from sqlalchemy.orm import Session

FAILED, TIMED_OUT = "task_failure", "timed_out"
"""The scheduler's messages for a run that failed by itself; a run that a person marked as failed has another one."""
_log = logging.getLogger(__name__)


@hookimpl
def on_dag_run_failed(dag_run: "DagRun", msg: str) -> None:
    """Pauses the DAG if a failed checkpoint exceeds the tolerable number.

    Args:
        dag_run: the run, in the scheduler's session; the scheduler commits it.
        msg: why it failed.
    """
    from airflow.utils.session import create_session
    from sqlalchemy.orm import object_session

    if msg not in (FAILED, TIMED_OUT):
        return
    session = object_session(dag_run)
    if session is not None:
        _judge(dag_run, msg, session)
        return
    with create_session() as own:  # `airflow dags test` has no session
        _judge(dag_run, msg, own)


def _judge(dag_run: "DagRun", msg: str, session: "Session") -> None:
    counted = _expired(dag_run, session) if msg == TIMED_OUT else _failed(dag_run, session)
    for found in counted:
        if found["in_a_row"] > found["tolerable"]:
            _pause(dag_run.dag_id, found, session)


def _failed(dag_run: "DagRun", session: "Session") -> list[dict[str, Any]]:
    """The counts of the tasks that failed in this run."""
    return [value for _, value, state in _counted(dag_run, session) if state == "failed"]


def _expired(dag_run: "DagRun", session: "Session") -> list[dict[str, Any]]:
    """The counts from before this run plus one, because the open plan of the run expires.

    A run that has not planned yet, or has sealed its checkpoint, lets no plan expire.
    """
    if _state(dag_run, FOLD, session) == "success":
        return []
    planned = [v for task, v, state in _counted(dag_run, session) if (task, state) == (PLAN, "success")]
    return [{**value, "in_a_row": value["in_a_row"] + 1} for value in planned]


def _counted(dag_run: "DagRun", session: "Session") -> list[tuple[str, dict[str, Any], str | None]]:
    """Task, count and state of the tasks that have counted since their last start.

    A cleared run still holds the counts of its first try; they are older than the start.
    """
    from airflow.models.task_state_store import TaskStateStoreModel as Stored
    from airflow.models.taskinstance import TaskInstance
    from sqlalchemy import and_, select

    same = and_(TaskInstance.dag_id == Stored.dag_id, TaskInstance.run_id == Stored.run_id)
    wanted = (
        select(Stored.task_id, Stored.value, TaskInstance.state)
        .join(TaskInstance, and_(same, TaskInstance.task_id == Stored.task_id))
        .where(Stored.dag_id == dag_run.dag_id, Stored.run_id == dag_run.run_id, Stored.key == FAILURE_COUNT)
        .where(Stored.updated_at >= TaskInstance.start_date)
    )
    return [(task, json.loads(value), state) for task, value, state in session.execute(wanted)]


def _state(dag_run: "DagRun", task: str, session: "Session") -> str | None:
    found = dag_run.get_task_instance(task, session=session)
    return None if found is None or found.state is None else str(found.state)


def _pause(dag_id: str, found: dict[str, Any], session: "Session") -> None:
    from airflow.models.dag import DagModel
    from airflow.models.log import Log
    from sqlalchemy import update

    why = f"{found['in_a_row']} failed checkpoints in a row, {found['tolerable']} are tolerated"
    _log.warning("pausing DAG %s: %s", dag_id, why)
    session.execute(update(DagModel).where(DagModel.dag_id == dag_id).values(is_paused=True))
    session.add(Log(event="paused", dag_id=dag_id, owner="tidemark", owner_display_name="Tidemark", extra=why))
