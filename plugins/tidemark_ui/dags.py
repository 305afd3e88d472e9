"""What Airflow says of the DAG that checkpoints a pipeline: when it runs next, and how it is set."""

from datetime import datetime
from typing import Any

from airflow.models.dag import DagModel
from airflow.models.serialized_dag import SerializedDagModel
from sqlalchemy.orm import Session

from tidemark_ui.access import dags_of

ON_DEMAND = "None"
"""What Airflow calls the schedule of a DAG that has none."""


def dag_facts(pipeline: str, session: Session) -> dict[str, Any]:
    """Of the first DAG that checkpoints a pipeline; empty values where Airflow knows none."""
    for dag_id in dags_of(pipeline, session):
        dag = session.get(DagModel, dag_id)
        if dag is not None:
            return {
                "dag_id": dag_id,
                "is_paused": dag.is_paused,
                "next_run": _told(dag.next_dagrun_create_after),
                "interval": None if dag.timetable_summary == ON_DEMAND else dag.timetable_summary,
            }
    return {"dag_id": None, "is_paused": None, "next_run": None, "interval": None}


def dag_config(pipeline: str, session: Session) -> dict[str, Any]:
    """Interval, timeout, least pause (ms), how many failures in a row are tolerated: as the DAG was parsed last."""
    facts = dag_facts(pipeline, session)
    made = None if facts["dag_id"] is None else SerializedDagModel.get_dag(facts["dag_id"], session=session)
    if made is None:
        return {**facts, **dict.fromkeys(("timeout", "min_pause", "tolerable_failed_checkpoints", "retries"))}
    fold = made.task_dict.get("fold")
    timeout = getattr(fold, "execution_timeout", None)
    return {
        **facts,
        "timeout": None if timeout is None else round(timeout.total_seconds() * 1000),
        "min_pause": getattr(made.task_dict.get("plan"), "min_pause", None),
        "tolerable_failed_checkpoints": getattr(made.task_dict.get("plan"), "tolerable", None),
        "retries": getattr(fold, "retries", None),
    }


def _told(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()
