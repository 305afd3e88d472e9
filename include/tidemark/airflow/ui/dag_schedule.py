"""The schedule of a DAG, as Airflow has stored it: in words, in its own time zone, and when runs are due."""

from functools import partial
from typing import Any

from airflow.models.dag import DagModel
from airflow.models.serialized_dag import SerializedDagModel
from sqlalchemy.orm import Session

from tidemark.airflow.run_times import RunTimes
from tidemark.answers.pipeline_verdict import ScheduleFacts
from tidemark.web.health import RunSchedule
from tidemark.web.verdict import span_text

_PARSED: dict[str, tuple[str, RunTimes]] = {}
"""Per DAG the hash of its serialized form, and its times: parsing a DAG is slow, and pages poll."""


def describe_schedule(dag: DagModel, session: Session) -> RunSchedule | None:
    """Describes the schedule of a DAG, as of its last parse; None if Airflow has no serialized form of it."""
    times = _parse(dag.dag_id, session)
    if times is None:
        return None
    planned = dag.next_dagrun_create_after
    stored = times.timetable.serialize() if times.kind == "time" else {}
    facts = ScheduleFacts(
        kind=times.kind,
        text=_words(dag, stored),
        zone=_zone(stored),
        is_paused=bool(dag.is_paused),
        next_run=None if planned is None else planned.isoformat(),
        end=None if times.end is None else times.end.isoformat(),
    )
    return RunSchedule(facts=facts, due_after=partial(times.due_after, is_planned=planned is not None))


def _parse(dag_id: str, session: Session) -> RunTimes | None:
    newest = SerializedDagModel.latest_item_select_object(dag_id)
    digest = session.scalar(newest.with_only_columns(SerializedDagModel.dag_hash))
    known, times = _PARSED.get(dag_id, ("", None))
    if digest is None or known == digest:
        return None if digest is None else times
    dag = SerializedDagModel.get_dag(dag_id, session=session)
    if dag is None:
        return None
    times = RunTimes(timetable=dag.timetable, begin=dag.start_date, end=dag.end_date)
    _PARSED[dag_id] = (digest, times)
    return times


def _words(dag: DagModel, stored: dict[str, Any]) -> str:
    """The description of the timetable, or its summary; a span in words instead of Python's."""
    delta = stored.get("delta")
    if isinstance(delta, int | float):
        return f"Every {span_text(round(delta * 1000))}"
    return dag.timetable_description or dag.timetable_summary or ""


def _zone(stored: dict[str, Any]) -> str | None:
    """The time zone of a cron expression; a fixed offset is stored in seconds."""
    zone = stored.get("timezone")
    return f"UTC{zone / 3600:+g} h" if isinstance(zone, int) else zone
