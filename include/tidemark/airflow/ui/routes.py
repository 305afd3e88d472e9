"""The routes that read (docs/rest.md). Paths and fields have Flink's names where the meaning is Flink's."""

from pathlib import Path as File
from typing import Annotated

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag
from fastapi import APIRouter, Depends, HTTPException, Path, Query
from fastapi.responses import FileResponse
from pydantic import BaseModel, ConfigDict, Field

from tidemark.airflow.ui.access import Readable, may, pipelines_of
from tidemark.airflow.ui.dags import add_dag_config, describe_pipeline
from tidemark.airflow.ui.shared import shared_context
from tidemark.answers.checkpoint_details import CheckpointConfig, CheckpointDetails, DueTimes, OperatorDetails
from tidemark.answers.checkpoint_overview import ChartPoint, CheckpointsOverview, PipelineFacts
from tidemark.answers.dead_letter_facts import DeadLetterOverview
from tidemark.answers.lineage_graph import LineageGraph
from tidemark.answers.publication_facts import PublicationStatus
from tidemark.answers.retention_facts import RetentionPreview
from tidemark.answers.row_sources import DeadLetterPage, RecordPage, RowOrigin, SinkOrigin
from tidemark.answers.timeline_facts import (
    BackfillPreview,
    DisposalPreview,
    RestorePreview,
    RunProducts,
    SavepointFacts,
    TimelineNode,
)
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.web import details as details_page
from tidemark.web import graphs, overview, previews, row_origin, sink_rows
from tidemark.web import source_lookup as record_answers
from tidemark.web.history import CheckpointStatus
from tidemark.web.history_lines import HistoryQuery
from tidemark.web.source_lookup import RecordQuery

router = APIRouter()
FILES = {path.name: path for path in (File(__file__).parent / "static").glob("*.js")}
"""The bundle. It holds no data, yet it requires a login like all other routes."""
Number = Annotated[int, Path(ge=1, le=10**12)]
Name = Annotated[str, Path(min_length=1, max_length=63)]


@router.get("/static/{name}")
def static(name: Name) -> FileResponse:
    """A file of the bundle."""
    if name not in FILES:
        raise HTTPException(404, "Not Found")
    return FileResponse(FILES[name], media_type="text/javascript; charset=utf-8")


@router.get("/pipelines")
def pipelines(user: GetUserDep, session: SessionDep) -> list[PipelineFacts]:
    """Pipelines that the user may see."""
    seen = [name for name in shared_context().warehouse.list_pipelines() if may("GET", name, user, session)]
    return [describe_pipeline(name, session, may_trigger=may("POST", name, user, session)) for name in seen]


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
def checkpoints(pipeline: Readable, asked: Annotated[HistoryParams, Query()]) -> CheckpointsOverview:
    """Flink's `/jobs/:id/checkpoints`: counts, summary, latest, history."""
    return overview.get_overview(shared_context(), pipeline, HistoryQuery(**dict(asked)))


@router.get("/pipelines/{pipeline}/checkpoints/config")
def config(pipeline: Readable, session: SessionDep) -> CheckpointConfig:
    """Flink's `/jobs/:id/checkpoints/config`."""
    return add_dag_config(details_page.get_config(shared_context(), pipeline), pipeline, session)


@router.get("/pipelines/{pipeline}/checkpoints/series")
def series(pipeline: Readable, last: Annotated[int, Query(ge=1, le=1000)] = 100) -> list[ChartPoint]:
    """The points of the charts, oldest first."""
    return overview.list_points(shared_context(), pipeline, last)


@router.get("/pipelines/{pipeline}/checkpoints/details/{checkpoint}")
def details(pipeline: Readable, checkpoint: Number) -> CheckpointDetails:
    """Flink's `/jobs/:id/checkpoints/details/:cid`, with all operators."""
    return details_page.get_details(shared_context(), pipeline, checkpoint)


@router.get("/pipelines/{pipeline}/checkpoints/details/{checkpoint}/subtasks/{uid}")
def subtasks(pipeline: Readable, checkpoint: Number, uid: Name) -> OperatorDetails:
    """Flink's `/jobs/:id/checkpoints/details/:cid/subtasks/:vid`: one operator."""
    operators = details_page.get_details(shared_context(), pipeline, checkpoint).tasks
    found = next((operator for operator in operators if operator.uid == uid), None)
    if found is None:
        raise HTTPException(404, "Not Found")
    return found


@router.get("/pipelines/{pipeline}/checkpoints/details/{checkpoint}/subtasks/{uid}/due")
def due(pipeline: Readable, checkpoint: Number, uid: Name, limit: Annotated[int, Query(ge=1, le=100)] = 20) -> DueTimes:
    """The open windows or the timers of an operator at a checkpoint: how many, and when the next ones are due."""
    return details_page.list_due_times(shared_context(), pipeline, checkpoint, uid, limit)


@router.get("/pipelines/{pipeline}/checkpoints/lineage/{checkpoint}")
def lineage(pipeline: Readable, checkpoint: Number) -> LineageGraph:
    """The lineage of one checkpoint as nodes and edges."""
    return graphs.build_graph(shared_context(), pipeline, checkpoint)


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
def records(pipeline: Readable, checkpoint: Number, asked: Annotated[RecordParams, Query()]) -> RecordPage:
    """Records that a checkpoint read, as far as Kafka still has them; a bounded read."""
    return record_answers.read_records(shared_context(), pipeline, checkpoint, RecordQuery(**dict(asked)))


@router.get("/pipelines/{pipeline}/checkpoints/details/{checkpoint}/dead-letters")
def dead_letters(
    pipeline: Readable,
    checkpoint: Number,
    uid: Annotated[str, Query(min_length=1, max_length=63)],
    limit: Annotated[int, Query(ge=1, le=100)] = 25,
    offset: Annotated[int, Query(ge=0, le=10**9)] = 0,
) -> DeadLetterPage:
    """Records that an operator could not apply in a checkpoint, with the reasons."""
    return record_answers.read_dead_letters(shared_context(), pipeline, checkpoint, uid, limit=limit, offset=offset)


@router.get("/pipelines/{pipeline}/timelines")
def timelines(pipeline: Readable) -> list[TimelineNode]:
    """The tree of timelines."""
    return overview.list_timelines(shared_context(), pipeline)


@router.get("/pipelines/{pipeline}/publications")
def publications(pipeline: Readable) -> list[PublicationStatus]:
    """Publications: the checkpoint that each target has, and how far it is behind."""
    return overview.list_publications(shared_context(), pipeline)


@router.get("/pipelines/{pipeline}/dead-letters")
def live_dead_letters(pipeline: Readable) -> DeadLetterOverview:
    """Dead letters of the live timeline by operator and reason, and the requests to redrive them."""
    return overview.list_dead_letters(shared_context(), pipeline)


@router.get("/pipelines/{pipeline}/savepoints")
def savepoints(pipeline: Readable, disposed: bool = False) -> list[SavepointFacts]:
    """Savepoints, newest first."""
    return overview.list_savepoints(shared_context(), pipeline, disposed=disposed)


@router.get("/pipelines/{pipeline}/savepoints/{name}/disposal")
def disposal(pipeline: Readable, name: Name) -> DisposalPreview:
    """The dry run of a disposal."""
    return previews.preview_disposal(shared_context(), pipeline, name)


@router.get("/pipelines/{pipeline}/restore-plan")
def restore_plan(
    pipeline: Readable,
    checkpoint: Annotated[int | None, Query(ge=1, le=10**12)] = None,
    savepoint: Annotated[str | None, Query(max_length=63)] = None,
) -> RestorePreview:
    """The dry run of a restore."""
    request = RestoreRequest(checkpoint=checkpoint, savepoint=savepoint)
    return previews.preview_restore(shared_context(), pipeline, request)


@router.get("/pipelines/{pipeline}/backfill-plan")
def backfill_plan(
    pipeline: Readable,
    checkpoint: Annotated[int | None, Query(ge=1, le=10**12)] = None,
    savepoint: Annotated[str | None, Query(max_length=63)] = None,
) -> BackfillPreview:
    """The dry run of a backfill to the live head."""
    request = RestoreRequest(checkpoint=checkpoint, savepoint=savepoint)
    return previews.preview_backfill(shared_context(), pipeline, request)


@router.get("/pipelines/{pipeline}/retention-plan")
def retention_plan(pipeline: Readable) -> RetentionPreview:
    """The dry run of retention; lists every file."""
    return previews.preview_retention(shared_context(), pipeline)


@router.get("/pipelines/{pipeline}/state/{uid}/origin")
def origin(
    pipeline: Readable,
    uid: Name,
    key: Annotated[list[Annotated[str, Query(max_length=1000)]], Query(min_length=1, max_length=16)],
    checkpoint: Annotated[int | None, Query(ge=1, le=10**12)] = None,
) -> RowOrigin:
    """Which checkpoint changed a key last, in which DAG run, and from which offsets."""
    return row_origin.find_origin(shared_context(), pipeline, uid, key, checkpoint)


@router.get("/pipelines/{pipeline}/sinks/{name}/origin")
def sink_origin(
    pipeline: Readable,
    name: Name,
    checkpoint: Annotated[int, Query(ge=1, le=10**12)],
    where: Annotated[list[Annotated[str, Query(max_length=1100)]], Query(max_length=16)] = [],  # noqa: B006
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
) -> SinkOrigin:
    """Rows that a checkpoint emitted to a sink, in which DAG run, and for which records; `where` is `column=value`."""
    pairs = [text.partition("=") for text in where]
    if any(not equals for _, equals, _ in pairs):
        raise HTTPException(422, "where: column=value")
    wanted = {column: value for column, _, value in pairs}
    return sink_rows.find_sink_origin(shared_context(), pipeline, name, checkpoint, wanted, limit)


@router.get("/dags/{dag_id}/checkpoints", dependencies=[Depends(requires_access_dag("GET", DagAccessEntity.RUN))])
def made_by_run(
    dag_id: Annotated[str, Path(max_length=250)],
    run_id: Annotated[str, Query(min_length=1, max_length=250)],
    user: GetUserDep,
    session: SessionDep,
) -> list[RunProducts]:
    """The checkpoints, timelines and savepoints that a DAG run created, pipeline by pipeline."""
    return [
        overview.find_made_by(shared_context(), name, dag_id, run_id)
        for name in pipelines_of(dag_id, session)
        if may("GET", name, user, session)
    ]
