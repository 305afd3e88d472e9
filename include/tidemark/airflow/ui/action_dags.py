"""The DAGs behind the buttons of the pages, found by their tags and tasks; each is read once per version."""

from dataclasses import dataclass
from datetime import datetime

from airflow.api_fastapi.core_api.security import GetUserDep
from airflow.models.dag import DagModel, DagTag
from airflow.models.dag_version import DagVersion
from airflow.models.serialized_dag import SerializedDagModel
from sqlalchemy import select
from sqlalchemy.orm import Session

from tidemark.airflow.task_names import CHECKPOINT_TASKS, PLAN
from tidemark.airflow.ui.access import may, may_on
from tidemark.answers.run_outcomes import ActionFacts, PipelineActions
from tidemark.model.core.savepoint_expiry import span_ms

VERBS = (
    "restore", "fork", "redrive", "promote", "close", "patch", "transform", "stop", "resume", "erase", "hold",
)  # fmt: skip
"""Actions whose DAG has a task of their name after `plan`."""
KINDS: tuple[tuple[str, frozenset[str]], ...] = (
    ("checkpoint", CHECKPOINT_TASKS),
    ("backfill", frozenset({PLAN, "repeat", "compare", "promote"})),
    ("retention", frozenset({PLAN, "sweep", "verify"})),
    ("savepoint", frozenset({PLAN, "create"})),
    *((verb, frozenset({PLAN, verb})) for verb in VERBS),
)
"""The tasks that identify each kind of DAG; the first kind that fits counts."""
ON_DEMAND = (None, "None")
"""How Airflow summarizes the schedule of a DAG without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownDag:
    """One version of a DAG: its kind, and the default of its form's field `grace`."""

    version: str
    kind: str | None
    grace: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionSchedule:
    """The DAG that sweeps a pipeline; all fields are None if Airflow knows none."""

    dag_id: str | None = None
    is_paused: bool | None = None
    next_run: datetime | None = None
    grace_ms: int | None = None


_KNOWN: dict[str, KnownDag] = {}


def kind_of(tasks: frozenset[str]) -> str | None:
    """The kind of a DAG with these tasks."""
    return next((kind for kind, wanted in KINDS if wanted <= tasks), None)


def find_dags(pipeline: str, session: Session) -> list[tuple[str, DagModel, KnownDag]]:
    """The DAGs of a pipeline by kind, those on demand first: runs of a schedule are not meant for people."""
    tagged = select(DagTag.dag_id).where(DagTag.name == "tidemark")
    wanted = select(DagTag.dag_id).where(DagTag.name == pipeline, DagTag.dag_id.in_(tagged))
    dags = session.scalars(select(DagModel).where(DagModel.dag_id.in_(wanted), DagModel.is_stale.is_(False))).all()
    known = _read([dag.dag_id for dag in dags], session)
    found = [(made.kind, dag, made) for dag in dags if (made := known.get(dag.dag_id)) and made.kind is not None]
    return sorted(found, key=lambda x: (x[1].timetable_summary not in ON_DEMAND, x[1].dag_id))


def list_actions(pipeline: str, user: GetUserDep, session: Session) -> PipelineActions:
    """The actions that a user may start for a pipeline."""
    found: dict[str, ActionFacts] = {}
    for kind, dag, _ in find_dags(pipeline, session):
        if kind not in found and may_on("POST", dag.dag_id, user, session):
            may_unpause = may_on("PUT", dag.dag_id, user, session, entity=None)
            found[kind] = ActionFacts(dag_id=dag.dag_id, is_paused=dag.is_paused, may_unpause=may_unpause)
    return PipelineActions(pipeline=pipeline, may_dispose=may("POST", pipeline, user, session), dags=found)


def find_retention(pipeline: str, session: Session) -> RetentionSchedule:
    """The DAG that sweeps a pipeline, a scheduled one first."""
    found = [(dag, made) for kind, dag, made in find_dags(pipeline, session) if kind == "retention"]
    if not found:
        return RetentionSchedule()
    dag, made = found[-1]
    return RetentionSchedule(
        dag_id=dag.dag_id,
        is_paused=dag.is_paused,
        next_run=dag.next_dagrun_create_after,
        grace_ms=None if made.grace is None else span_ms(made.grace),
    )


def known_dag(dag_id: str, session: Session) -> KnownDag | None:
    """The newest version of a DAG; None if Airflow has none."""
    return _read([dag_id], session).get(dag_id)


def _read(dag_ids: list[str], session: Session) -> dict[str, KnownDag]:
    """Reads only DAGs whose newest version is not known yet, because a serialized DAG is large."""
    wanted = (
        select(SerializedDagModel.dag_id, SerializedDagModel.dag_hash)
        .join(DagVersion, SerializedDagModel.dag_version_id == DagVersion.id)
        .where(SerializedDagModel.dag_id.in_(dag_ids))
        .order_by(DagVersion.version_number)
    )
    newest = {dag_id: version for dag_id, version in session.execute(wanted)}
    for dag_id, version in newest.items():
        before = _KNOWN.get(dag_id)
        if before is None or before.version != version:
            _KNOWN[dag_id] = _describe(dag_id, version, session)
    return {dag_id: _KNOWN[dag_id] for dag_id in newest}


def _describe(dag_id: str, version: str, session: Session) -> KnownDag:
    dag = SerializedDagModel.get_dag(dag_id, session=session)
    if dag is None:
        return KnownDag(version=version, kind=None, grace=None)
    grace = str(dag.params["grace"]) if "grace" in dag.params else None
    return KnownDag(version=version, kind=kind_of(frozenset(dag.task_ids)), grace=grace)
