"""Pauses the DAGs of a pipeline that a DAG has stopped, and unpauses them when a DAG resumes it.

Tasks have no access to Airflow's database, so the tasks `stop` and `resume` store the wish in their task state; the
scheduler calls this listener after each run. A DAG with running DAG runs is paused after the last of them, because
pausing would stall a run halfway.
"""

import json
import logging
from typing import TYPE_CHECKING, Any

from airflow.listeners import hookimpl

from tidemark.airflow.task_names import CHECKPOINT_TASKS, PAUSE_REQUEST

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun
    from sqlalchemy.orm import Session

_log = logging.getLogger(__name__)


@hookimpl
def on_dag_run_success(dag_run: "DagRun", msg: str) -> None:
    """Fulfils the wish of a run that stopped or resumed a pipeline, and an earlier one that waited for this run."""
    _settle(dag_run)


@hookimpl
def on_dag_run_failed(dag_run: "DagRun", msg: str) -> None:
    """As after a success: the pipeline may be stopped although a later step failed."""
    _settle(dag_run)


def _settle(dag_run: "DagRun") -> None:
    from airflow.utils.session import create_session
    from sqlalchemy.orm import object_session

    session = object_session(dag_run)
    if session is not None:
        _fulfil(dag_run, session)
        return
    with create_session() as own:  # `airflow dags test` has no session
        _fulfil(dag_run, own)


def _fulfil(dag_run: "DagRun", session: "Session") -> None:
    tags = _tags(dag_run.dag_id, session)
    if "tidemark" not in tags:
        return
    for wish in _own_wishes(dag_run, session):
        for dag_id in _checkpoint_dags(wish["pipeline"], session):
            if not wish["paused"]:
                _set_paused(dag_id, wish["pipeline"], session, paused=False)
            elif not _is_running(dag_id, dag_run, session):
                _set_paused(dag_id, wish["pipeline"], session, paused=True)
    for pipeline in tags - {"tidemark"}:
        if _waits(dag_run, pipeline, session) and not _is_running(dag_run.dag_id, dag_run, session):
            _set_paused(dag_run.dag_id, pipeline, session, paused=True)


def _tags(dag_id: str, session: "Session") -> set[str]:
    from airflow.models.dag import DagTag
    from sqlalchemy import select

    return set(session.scalars(select(DagTag.name).where(DagTag.dag_id == dag_id)))


def _own_wishes(dag_run: "DagRun", session: "Session") -> list[dict[str, Any]]:
    """The wishes of this run's tasks."""
    from airflow.models.task_state_store import TaskStateStoreModel as Stored
    from sqlalchemy import select

    wanted = select(Stored.value).where(
        Stored.dag_id == dag_run.dag_id, Stored.run_id == dag_run.run_id, Stored.key == PAUSE_REQUEST
    )
    return [json.loads(value) for value in session.scalars(wanted)]


def _waits(dag_run: "DagRun", pipeline: str, session: "Session") -> bool:
    """Whether the newest wish for the pipeline is a pause that was stored while this checkpoint run was running.

    A run that began later belongs to a pipeline that was resumed some other way.
    """
    from airflow.models.task_state_store import TaskStateStoreModel as Stored
    from sqlalchemy import select

    if dag_run.start_date is None or dag_run.dag_id not in _checkpoint_dags(pipeline, session):
        return False
    wanted = (
        select(Stored.value)
        .where(Stored.key == PAUSE_REQUEST, Stored.updated_at >= dag_run.start_date)
        .order_by(Stored.updated_at.desc())
    )
    wishes = (json.loads(value) for value in session.scalars(wanted))
    newest = next((wish for wish in wishes if wish["pipeline"] == pipeline), None)
    return newest is not None and bool(newest["paused"])


def _checkpoint_dags(pipeline: str, session: "Session") -> list[str]:
    """The DAGs that checkpoint a pipeline, by their tags and their tasks."""
    from airflow.models.dag import DagTag
    from airflow.models.serialized_dag import SerializedDagModel
    from sqlalchemy import select

    tagged = select(DagTag.dag_id).where(DagTag.name == "tidemark")
    found = session.scalars(select(DagTag.dag_id).where(DagTag.name == pipeline, DagTag.dag_id.in_(tagged)))
    serialized = ((dag_id, SerializedDagModel.get(dag_id, session=session)) for dag_id in found)
    return sorted(dag_id for dag_id, dag in serialized if dag is not None and set(dag.dag.task_ids) >= CHECKPOINT_TASKS)


def _is_running(dag_id: str, ended: "DagRun", session: "Session") -> bool:
    """Whether the DAG has a running run besides the one that has just ended."""
    from airflow.models.dagrun import DagRun
    from sqlalchemy import func, select

    wanted = select(func.count()).select_from(DagRun).where(DagRun.dag_id == dag_id, DagRun.state == "running")
    return bool(session.scalar(wanted.where(DagRun.id != ended.id)))


def _set_paused(dag_id: str, pipeline: str, session: "Session", *, paused: bool) -> None:
    from airflow.models.dag import DagModel
    from airflow.models.log import Log
    from sqlalchemy import update

    why = f"pipeline {pipeline} was {'stopped' if paused else 'resumed'}"
    _log.warning("%s DAG %s: %s", "pausing" if paused else "unpausing", dag_id, why)
    session.execute(update(DagModel).where(DagModel.dag_id == dag_id).values(is_paused=paused))
    event = "paused" if paused else "unpaused"
    session.add(Log(event=event, dag_id=dag_id, owner="tidemark", owner_display_name="Tidemark", extra=why))
