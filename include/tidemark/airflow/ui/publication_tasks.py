"""The tasks that publish a pipeline's states, found by their assets, and how their newest runs are."""

from collections.abc import Collection

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.core_api.security import GetUserDep
from airflow.models.asset import AssetModel, TaskOutletAssetReference
from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from sqlalchemy import select
from sqlalchemy.orm import Session

from tidemark.airflow.ui.access import may_on
from tidemark.airflow.ui.ended_runs import list_failures
from tidemark.answers.publication_facts import PublicationTask
from tidemark.answers.run_outcomes import TaskFailure


def find_tasks(
    pipeline: str, publications: Collection[str], user: GetUserDep, session: Session
) -> dict[str, PublicationTask]:
    """The task of each publication that a DAG publishes, by the name of the publication.

    Args:
        pipeline: its name.
        publications: names of publications.
        user: sees no DAG that they may not read, and no failure without the right to read the logs of tasks.
        session: of Airflow's database.
    """
    names = {f"x-tidemark://{pipeline}/publication/{name}": name for name in publications}
    wanted = (
        select(AssetModel.uri, TaskOutletAssetReference.dag_id, TaskOutletAssetReference.task_id)
        .join(AssetModel, AssetModel.id == TaskOutletAssetReference.asset_id)
        .where(AssetModel.uri.in_(names))
        .order_by(TaskOutletAssetReference.dag_id)
    )
    found: dict[str, PublicationTask] = {}
    for uri, dag_id, task_id in session.execute(wanted):
        dag = session.get(DagModel, dag_id)
        if names[uri] not in found and dag is not None and may_on("GET", dag_id, user, session):
            found[names[uri]] = _task(dag, task_id, user, session)
    return found


def _task(dag: DagModel, task_id: str, user: GetUserDep, session: Session) -> PublicationTask:
    newest = session.scalar(
        select(TaskInstance)
        .join(DagRun, (DagRun.dag_id == TaskInstance.dag_id) & (DagRun.run_id == TaskInstance.run_id))
        .where(TaskInstance.dag_id == dag.dag_id, TaskInstance.task_id == task_id)
        .order_by(DagRun.id.desc())
        .limit(1)
    )
    return PublicationTask(
        dag_id=dag.dag_id,
        is_paused=dag.is_paused,
        run_id=None if newest is None else newest.run_id,
        state=None if newest is None or newest.state is None else str(newest.state),
        failure=None if newest is None else _failure(newest, user, session),
    )


def _failure(newest: TaskInstance, user: GetUserDep, session: Session) -> TaskFailure | None:
    """The newest failed try of a task, unless a later try has succeeded."""
    if newest.state == "success" or not may_on("GET", newest.dag_id, user, session, entity=DagAccessEntity.TASK_LOGS):
        return None
    tried = list_failures(newest.dag_id, newest.run_id, session)
    own = (one for one in tried if one.task == newest.task_id)
    return max(own, key=lambda one: one.try_number, default=None)
