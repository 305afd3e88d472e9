"""Permissions: you may see a pipeline if you may read the DAG that checkpoints it.

If Airflow knows no such DAG, for example after it lost its database, the pipeline's name counts as the DAG's.

Payloads are records, dead letters, and rows of states and sinks. The setting `TIDEMARK_PAYLOADS` names the right that
shows them. A route that answers with payloads takes its pipeline as `Payloads`, any other as `Readable`:

    @router.get("/pipelines/{pipeline}/compare")
    def compare(pipeline: Payloads) -> Comparison: ...
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import GetUserDep
from airflow.models.asset import AssetModel, TaskOutletAssetReference
from airflow.models.dag import DagModel, DagTag
from fastapi import Depends, HTTPException, Path
from sqlalchemy import select
from sqlalchemy.orm import Session

from tidemark.airflow.task_names import COMPLETE
from tidemark.airflow.ui.shared import shared_context
from tidemark.errors import TidemarkError
from tidemark.web import history_cache

Method = Literal["GET", "POST", "PUT"]
_NEEDED: Mapping[str, Method | None] = {"read": "GET", "trigger": "POST", "nobody": None}
_NEXT: Mapping[str, str] = {
    "read": "ask for read access to the pipeline's DAG.",
    "trigger": "ask for the right to trigger the pipeline's DAG.",
    "nobody": "read them with the command line, which needs access to the warehouse.",
}


class PayloadsHiddenError(TidemarkError):
    """The setting `TIDEMARK_PAYLOADS` hides the payloads of a pipeline from this user."""


def dags_of(pipeline: str, session: Session) -> list[str]:
    """Ids of the DAGs that checkpoint a pipeline, sorted. A backfill has another task with the asset as outlet."""
    found = session.scalars(
        select(TaskOutletAssetReference.dag_id)
        .join(AssetModel, AssetModel.id == TaskOutletAssetReference.asset_id)
        .where(AssetModel.uri == f"x-tidemark://{pipeline}/checkpoint", TaskOutletAssetReference.task_id == COMPLETE)
    )
    return sorted(set(found))


def pipelines_of(dag_id: str, session: Session) -> list[str]:
    """Pipelines that a DAG names by its tags; all pipelines of the warehouse if Airflow does not know the DAG."""
    known = shared_context().warehouse.list_pipelines()
    tags = set(session.scalars(select(DagTag.name).where(DagTag.dag_id == dag_id)))
    if not tags and session.get(DagModel, dag_id) is None:
        return known
    return [name for name in known if name in tags]


def may(method: Method, pipeline: str, user: GetUserDep, session: Session) -> bool:
    """Whether a user may read the checkpoints of a pipeline (GET), or trigger its DAG (POST)."""
    return any(may_on(method, dag, user, session) for dag in dags_of(pipeline, session) or [pipeline])


def may_on(
    method: Method,
    dag_id: str,
    user: GetUserDep,
    session: Session,
    *,
    entity: DagAccessEntity | None = DagAccessEntity.RUN,
) -> bool:
    """Whether a user may do something to the runs of a DAG, or to another `entity` of it; None = to the DAG itself."""
    return get_auth_manager().is_authorized_dag(
        method=method,
        access_entity=entity,
        details=DagDetails(id=dag_id, team_name=DagModel.get_team_name(dag_id, session=session)),
        user=user,
    )


def may_see_payloads(pipeline: str, user: GetUserDep, session: Session) -> bool:
    """Whether a user may see records, dead letters, and rows of states and sinks of a pipeline."""
    needed = _NEEDED[shared_context().settings.payloads]
    return needed is not None and may(needed, pipeline, user, session)


def _checked(method: Method, pipeline: str, user: GetUserDep, session: Session) -> str:
    if not may(method, pipeline, user, session):
        raise HTTPException(403, "Forbidden")
    return history_cache.require_planned(shared_context(), pipeline)


def readable(pipeline: Annotated[str, Path(max_length=63)], user: GetUserDep, session: SessionDep) -> str:
    """The pipeline of the path, if the user may see it.

    Raises:
        HTTPException: 403, the user may not.
        NotFoundError, NameRefusedError: the warehouse has no such pipeline.
    """
    return _checked("GET", pipeline, user, session)


def writable(pipeline: Annotated[str, Path(max_length=63)], user: GetUserDep, session: SessionDep) -> str:
    """The pipeline of the path, if the user may trigger its DAG.

    Raises:
        HTTPException: 403, the user may not.
        NotFoundError, NameRefusedError: the warehouse has no such pipeline.
    """
    return _checked("POST", pipeline, user, session)


Readable = Annotated[str, Depends(readable)]
Writable = Annotated[str, Depends(writable)]


def sees_payloads(pipeline: Readable, user: GetUserDep, session: SessionDep) -> bool:
    """Whether the user may see the payloads of the pipeline of the path; for answers that can leave them out."""
    return may_see_payloads(pipeline, user, session)


def with_payloads(pipeline: Readable, seen: Annotated[bool, Depends(sees_payloads)]) -> str:
    """The pipeline of the path, if the user may see its payloads.

    Raises:
        PayloadsHiddenError: the user may not.
    """
    if not seen:
        raise PayloadsHiddenError(
            f"you may not see records and rows of {pipeline}",
            safe="counts, offsets, sizes and reasons are shown.",
            next=_NEXT[shared_context().settings.payloads],
        )
    return pipeline


SeesPayloads = Annotated[bool, Depends(sees_payloads)]
Payloads = Annotated[str, Depends(with_payloads)]
