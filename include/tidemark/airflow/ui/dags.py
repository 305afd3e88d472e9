"""Facts of the DAG that checkpoints a pipeline: its next run and its settings."""

from dataclasses import dataclass, replace

from airflow.models.dag import DagModel
from airflow.models.serialized_dag import SerializedDagModel
from sqlalchemy.orm import Session

from tidemark.airflow.task_names import FOLD, PLAN
from tidemark.airflow.ui.access import dags_of
from tidemark.airflow.ui.dag_schedule import describe_schedule
from tidemark.answers.checkpoint_details import CheckpointConfig
from tidemark.answers.checkpoint_overview import PipelineFacts
from tidemark.web.health import RunSchedule

ON_DEMAND = "None"
"""Airflow's name for the schedule of a DAG without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DagFacts:
    """The first DAG that checkpoints a pipeline; all fields are None if Airflow knows none."""

    dag_id: str | None = None
    is_paused: bool | None = None
    next_run: str | None = None
    interval: str | None = None
    schedule: RunSchedule | None = None


def find_dag(pipeline: str, session: Session) -> DagFacts:
    """The first DAG that checkpoints a pipeline."""
    for dag_id in dags_of(pipeline, session):
        dag = session.get(DagModel, dag_id)
        if dag is not None:
            next_run = dag.next_dagrun_create_after
            return DagFacts(
                dag_id=dag_id,
                is_paused=dag.is_paused,
                next_run=None if next_run is None else next_run.isoformat(),
                interval=None if dag.timetable_summary == ON_DEMAND else dag.timetable_summary,
                schedule=describe_schedule(dag, session),
            )
    return DagFacts()


def describe_pipeline(name: str, session: Session, *, may_trigger: bool, may_see_payloads: bool) -> PipelineFacts:
    """A pipeline with its DAG, and the rights of the user."""
    dag = find_dag(name, session)
    return PipelineFacts(
        name=name,
        dag_id=dag.dag_id,
        is_paused=dag.is_paused,
        next_run=dag.next_run,
        interval=dag.interval,
        may_trigger=may_trigger,
        may_see_payloads=may_see_payloads,
        schedule=None if dag.schedule is None else dag.schedule.facts,
        verdict=None,
    )


def add_dag_config(config: CheckpointConfig, pipeline: str, session: Session) -> CheckpointConfig:
    """Adds the settings that the DAG decides, as of its last parse, to a configuration."""
    dag = find_dag(pipeline, session)
    config = replace(config, dag_id=dag.dag_id, is_paused=dag.is_paused, next_run=dag.next_run, interval=dag.interval)
    found = None if dag.dag_id is None else SerializedDagModel.get_dag(dag.dag_id, session=session)
    if found is None:
        return config
    fold, plan = found.task_dict.get(FOLD), found.task_dict.get(PLAN)
    return replace(
        config,
        timeout=getattr(fold, "attempt_timeout", None),
        min_pause=getattr(plan, "min_pause", None),
        tolerable_failed_checkpoints=getattr(plan, "tolerable", None),
        retries=getattr(fold, "retries", None),
    )
