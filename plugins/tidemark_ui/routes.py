"""The routes that read (docs/rest.md). Paths and fields are Flink's where the meaning is (K6–K8)."""

from pathlib import Path as File
from typing import Annotated, Any

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag
from fastapi import APIRouter, Depends, HTTPException, Path, Query
from fastapi.responses import FileResponse
from pydantic import BaseModel, ConfigDict, Field

from tidemark.web import details as details_page
from tidemark.web import graphs, overview, previews, row_origin, sink_rows
from tidemark.web import source_lookup as record_answers
from tidemark.web.history import CheckpointStatus
from tidemark.web.history_json import HistoryQuery
from tidemark.web.previews import RestorePointRequest
from tidemark.web.source_lookup import RecordQuery
from tidemark_ui import models
from tidemark_ui.access import Readable, may, pipelines_of
from tidemark_ui.dags import dag_config, dag_facts
from tidemark_ui.reading import shared_context

router = APIRouter()
FILES = {path.name: path for path in (File(__file__).parent / "static").glob("*.js")}
"""The bundle; it holds no data, and is guarded all the same."""
Number = Annotated[int, Path(ge=1, le=10**12)]
Name = Annotated[str, Path(min_length=1, max_length=63)]


@router.get("/static/{name}")
def static(name: Name) -> FileResponse:
    """A file of the bundle."""
    if name not in FILES:
        raise HTTPException(404, "Not Found")
    return FileResponse(FILES[name], media_type="text/javascript; charset=utf-8")


@router.get("/pipelines")
def pipelines(user: GetUserDep, session: SessionDep) -> list[models.PipelineFacts]:
    """Pipelines that the user may see."""
    seen = [name for name in shared_context().warehouse.list_pipelines() if may("GET", name, user, session)]
    return [
        models.PipelineFacts(name=name, may_trigger=may("POST", name, user, session), **dag_facts(name, session))
        for name in seen
    ]


class HistoryParams(BaseModel):
    """The query of a history; see `HistoryQuery`."""

    model_config = ConfigDict(extra="forbid")

    status: CheckpointStatus | None = None
    timeline: str | None = Field(None, max_length=63)
    pinned: bool = False
    text: str = Field("", max_length=250)
    limit: int = Field(25, ge=0, le=100)
    offset: int = Field(0, ge=0, le=1_000_000)


@router.get("/pipelines/{pipeline}/checkpoints")
def checkpoints(pipeline: Readable, asked: Annotated[HistoryParams, Query()]) -> models.Overview:
    """Flink's `/jobs/:id/checkpoints`: counts, summary, latest, history."""
    return models.Overview.model_validate(
        overview.get_overview(shared_context(), pipeline, HistoryQuery(**dict(asked)))
    )


@router.get("/pipelines/{pipeline}/checkpoints/config")
def config(pipeline: Readable, session: SessionDep) -> models.Config:
    """Flink's `/jobs/:id/checkpoints/config`."""
    return models.Config.model_validate(
        {**details_page.get_config(shared_context(), pipeline), **dag_config(pipeline, session)}
    )


@router.get("/pipelines/{pipeline}/checkpoints/series")
def series(pipeline: Readable, last: Annotated[int, Query(ge=1, le=1000)] = 100) -> list[models.Point]:
    """What the charts draw, oldest first."""
    return [models.Point.model_validate(p) for p in overview.list_points(shared_context(), pipeline, last)]


@router.get("/pipelines/{pipeline}/checkpoints/details/{checkpoint}")
def details(pipeline: Readable, checkpoint: Number) -> models.Details:
    """Flink's `/jobs/:id/checkpoints/details/:cid`, with all operators."""
    return models.Details.model_validate(details_page.get_details(shared_context(), pipeline, checkpoint))


@router.get("/pipelines/{pipeline}/checkpoints/details/{checkpoint}/subtasks/{uid}")
def subtasks(pipeline: Readable, checkpoint: Number, uid: Name) -> models.Task:
    """Flink's `/jobs/:id/checkpoints/details/:cid/subtasks/:vid`: one operator."""
    found = (
        task for task in details_page.get_details(shared_context(), pipeline, checkpoint)["tasks"] if task["uid"] == uid
    )
    task = next(found, None)
    if task is None:
        raise HTTPException(404, "Not Found")
    return models.Task.model_validate(task)


@router.get("/pipelines/{pipeline}/checkpoints/lineage/{checkpoint}")
def lineage(pipeline: Readable, checkpoint: Number) -> models.Graph:
    """The lineage of one checkpoint as nodes and edges."""
    return models.Graph.model_validate(graphs.build_graph(shared_context(), pipeline, checkpoint))


class RecordParams(BaseModel):
    """The query of records; see `RecordQuery`."""

    model_config = ConfigDict(extra="forbid")

    uid: str | None = Field(None, max_length=63)
    key: list[Annotated[str, Field(max_length=1000)]] = Field([], max_length=16)
    partition: str | None = Field(None, max_length=270)
    start: int | None = Field(None, ge=0, lt=2**63)
    end: int | None = Field(None, ge=0, lt=2**63)
    after: str | None = Field(None, max_length=300)
    limit: int = Field(20, ge=1, le=100)


@router.get("/pipelines/{pipeline}/checkpoints/details/{checkpoint}/records")
def records(pipeline: Readable, checkpoint: Number, asked: Annotated[RecordParams, Query()]) -> models.Records:
    """Records that a checkpoint read, as far as Kafka still has them; a bounded read."""
    return models.Records.model_validate(
        record_answers.read_records(shared_context(), pipeline, checkpoint, RecordQuery(**dict(asked)))
    )


@router.get("/pipelines/{pipeline}/checkpoints/details/{checkpoint}/dead-letters")
def dead_letters(
    pipeline: Readable,
    checkpoint: Number,
    uid: Annotated[str, Query(min_length=1, max_length=63)],
    limit: Annotated[int, Query(ge=1, le=100)] = 25,
    offset: Annotated[int, Query(ge=0, le=10**9)] = 0,
) -> models.DeadLetters:
    """What an operator could not apply in a checkpoint, and why."""
    found = record_answers.read_dead_letters(shared_context(), pipeline, checkpoint, uid, limit=limit, offset=offset)
    return models.DeadLetters.model_validate(found)


@router.get("/pipelines/{pipeline}/timelines")
def timelines(pipeline: Readable) -> list[models.Timeline]:
    """The tree of timelines."""
    return [models.Timeline.model_validate(t) for t in overview.list_timelines(shared_context(), pipeline)]


@router.get("/pipelines/{pipeline}/savepoints")
def savepoints(pipeline: Readable, disposed: bool = False) -> list[models.Savepoint]:
    """Savepoints, newest first."""
    return [
        models.Savepoint.model_validate(s)
        for s in overview.list_savepoints(shared_context(), pipeline, disposed=disposed)
    ]


@router.get("/pipelines/{pipeline}/savepoints/{name}/disposal")
def disposal(pipeline: Readable, name: Name) -> models.Disposal:
    """The dry run of a disposal."""
    return models.Disposal.model_validate(previews.preview_disposal(shared_context(), pipeline, name))


@router.get("/pipelines/{pipeline}/restore-plan")
def restore_plan(
    pipeline: Readable,
    checkpoint: Annotated[int | None, Query(ge=1, le=10**12)] = None,
    savepoint: Annotated[str | None, Query(max_length=63)] = None,
) -> models.RestorePlan:
    """The dry run of a restore."""
    begins = RestorePointRequest(checkpoint=checkpoint, savepoint=savepoint)
    return models.RestorePlan.model_validate(previews.preview_restore(shared_context(), pipeline, begins))


@router.get("/pipelines/{pipeline}/backfill-plan")
def backfill_plan(
    pipeline: Readable,
    checkpoint: Annotated[int | None, Query(ge=1, le=10**12)] = None,
    savepoint: Annotated[str | None, Query(max_length=63)] = None,
) -> models.BackfillPlan:
    """The dry run of a backfill to the live head."""
    begins = RestorePointRequest(checkpoint=checkpoint, savepoint=savepoint)
    return models.BackfillPlan.model_validate(previews.preview_backfill(shared_context(), pipeline, begins))


@router.get("/pipelines/{pipeline}/retention-plan")
def retention_plan(pipeline: Readable) -> models.RetentionPlan:
    """The dry run of retention; looks at every file."""
    return models.RetentionPlan.model_validate(previews.preview_retention(shared_context(), pipeline))


@router.get("/pipelines/{pipeline}/state/{uid}/origin")
def origin(
    pipeline: Readable,
    uid: Name,
    key: Annotated[list[Annotated[str, Query(max_length=1000)]], Query(min_length=1, max_length=16)],
    checkpoint: Annotated[int | None, Query(ge=1, le=10**12)] = None,
) -> models.Origin:
    """Which checkpoint changed a key last, in which DAG run, and from which offsets."""
    return models.Origin.model_validate(row_origin.find_origin(shared_context(), pipeline, uid, key, checkpoint))


@router.get("/pipelines/{pipeline}/sinks/{name}/origin")
def sink_origin(
    pipeline: Readable,
    name: Name,
    checkpoint: Annotated[int, Query(ge=1, le=10**12)],
    where: Annotated[list[Annotated[str, Query(max_length=1100)]], Query(max_length=16)] = [],  # noqa: B006
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
) -> models.SinkOrigin:
    """Rows that a checkpoint emitted to a sink, in which DAG run, and for which records; `where` is `column=value`."""
    pairs = [text.partition("=") for text in where]
    if any(not equals for _, equals, _ in pairs):
        raise HTTPException(422, "where: column=value")
    wanted = {column: value for column, _, value in pairs}
    return models.SinkOrigin.model_validate(
        sink_rows.find_sink_origin(shared_context(), pipeline, name, checkpoint, wanted, limit)
    )


@router.get("/dags/{dag_id}/checkpoints", dependencies=[Depends(requires_access_dag("GET", DagAccessEntity.RUN))])
def made_by_run(
    dag_id: Annotated[str, Path(max_length=250)],
    run_id: Annotated[str, Query(min_length=1, max_length=250)],
    user: GetUserDep,
    session: SessionDep,
) -> list[models.MadeByRun]:
    """What a DAG run made, pipeline by pipeline."""
    found: list[dict[str, Any]] = [
        {"pipeline": name, **overview.find_made_by(shared_context(), name, dag_id, run_id)}
        for name in pipelines_of(dag_id, session)
        if may("GET", name, user, session)
    ]
    return [models.MadeByRun.model_validate(f) for f in found]
