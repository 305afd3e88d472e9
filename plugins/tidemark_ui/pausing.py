"""Pauses a DAG whose checkpoints have failed more often in a row than its pipeline tolerates (D6).

Airflow's own `max_consecutive_failed_dag_runs` counts every failed run: a form with a slip in it, a run of a stopped
pipeline, a checkpoint that an operator has declined. What counts is what the coordinator counts. Tasks cannot pause
their DAG, because they have no access to Airflow's database: they leave the count on themselves, and this listener,
which the scheduler calls when a run has failed, goes by it.
"""

import json
import logging
from typing import TYPE_CHECKING, Any

from airflow.listeners import hookimpl

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun
    from sqlalchemy.orm import Session

COUNTED = "failed_checkpoints"
"""Where `tidemark.airflow.failure_callbacks` keeps the count."""
FAILED, TIMED_OUT = "task_failure", "timed_out"
"""What the scheduler says of a run that failed by itself; where a person marked it as failed, another text comes."""
_log = logging.getLogger(__name__)


@hookimpl
def on_dag_run_failed(dag_run: "DagRun", msg: str) -> None:
    """Pauses the DAG where a failed checkpoint was one too many.

    Args:
        dag_run: the run, in the session of the scheduler, which commits.
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
    with create_session() as own:  # `airflow dags test` has none at hand
        _judge(dag_run, msg, own)


def _judge(dag_run: "DagRun", msg: str, session: "Session") -> None:
    counted = _expired(dag_run, session) if msg == TIMED_OUT else _failed(dag_run, session)
    for found in counted:
        if found["in_a_row"] > found["tolerable"]:
            _pause(dag_run.dag_id, found, session)


def _failed(dag_run: "DagRun", session: "Session") -> list[dict[str, Any]]:
    """What the tasks have counted that failed in this run."""
    return [value for _, value, state in _counted(dag_run, session) if state == "failed"]


def _expired(dag_run: "DagRun", session: "Session") -> list[dict[str, Any]]:
    """What there was before this run, and the checkpoint that it was at: its plan expires now.

    A run that had not planned yet, or had sealed its checkpoint, has let none expire.
    """
    if _state(dag_run, "fold", session) == "success":
        return []
    planned = [v for task, v, state in _counted(dag_run, session) if (task, state) == ("plan", "success")]
    return [{**value, "in_a_row": value["in_a_row"] + 1} for value in planned]


def _counted(dag_run: "DagRun", session: "Session") -> list[tuple[str, dict[str, Any], str | None]]:
    """Task, count and state of those that have counted since they were started last.

    A run that is cleared and repeated meets the counts of its first time.
    """
    from airflow.models.task_state_store import TaskStateStoreModel as Stored
    from airflow.models.taskinstance import TaskInstance
    from sqlalchemy import and_, select

    same = and_(TaskInstance.dag_id == Stored.dag_id, TaskInstance.run_id == Stored.run_id)
    wanted = (
        select(Stored.task_id, Stored.value, TaskInstance.state)
        .join(TaskInstance, and_(same, TaskInstance.task_id == Stored.task_id))
        .where(Stored.dag_id == dag_run.dag_id, Stored.run_id == dag_run.run_id, Stored.key == COUNTED)
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
