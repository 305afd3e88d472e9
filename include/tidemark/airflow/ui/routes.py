"""The routes that read (docs/rest.md). Paths and fields have Flink's names where the meaning is Flink's."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Annotated

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag
from fastapi import APIRouter, Depends, HTTPException, Path, Query, Response
from fastapi.responses import FileResponse
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from tidemark.airflow.ui.access import Payloads, Readable, SeesPayloads, may, may_see_payloads, pipelines_of
from tidemark.airflow.ui.action_dags import find_retention, list_actions
from tidemark.airflow.ui.bundle import ENTRIES, STATIC, VERSION, join_modules
from tidemark.airflow.ui.dags import add_dag_config, describe_pipeline, find_dag
from tidemark.airflow.ui.ended_runs import describe_run, find_owner
from tidemark.airflow.ui.publication_tasks import find_tasks
from tidemark.airflow.ui.shared import shared_context
from tidemark.answers.checkpoint_comparison import CheckpointComparison
from tidemark.answers.checkpoint_details import (
    CheckpointConfig,
    CheckpointDetails,
    DueTimes,
    OperatorDetails,
    Rejections,
)
from tidemark.answers.checkpoint_overview import ChartSeries, CheckpointsOverview, PipelineFacts
from tidemark.answers.column_facts import ColumnLineage
from tidemark.answers.dead_letter_facts import DeadLetterOverview, LiveLetterPage
from tidemark.answers.event_time_facts import EventTimeFacts
from tidemark.answers.lineage_graph import LineageGraph
from tidemark.answers.publication_facts import PublicationDetails, PublicationLag
from tidemark.answers.retention_facts import RetentionCalendar, RetentionPreview
from tidemark.answers.row_sources import DeadLetterPage, RecordPage, RowOrigin, SinkOrigin
from tidemark.answers.run_facts import BacklogFacts
from tidemark.answers.run_outcomes import PipelineActions, RunOutcome, RunOwner
from tidemark.answers.timeline_facts import (
    BackfillPreview,
    DisposalPreview,
    QueryableStates,
    RestorePreview,
    RunProducts,
    SavepointFacts,
    TimelineNode,
)
from tidemark.coordinator.plans.initial_offsets import to_ms
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.web import columns as column_answers
from tidemark.web import (
    comparison,
    event_time,
    graphs,
    health,
    history_cache,
    overview,
    previews,
    publication_lag,
    retention_calendar,
    row_origin,
    sink_rows,
)
from tidemark.web import details as details_page
from tidemark.web import source_lookup as record_answers
from tidemark.web.comparison import ComparisonQuery
from tidemark.web.history import CheckpointStatus
from tidemark.web.history_lines import HistoryQuery, HistorySort
from tidemark.web.retention_calendar import WhatIf
from tidemark.web.scope import ALL, LIVE
from tidemark.web.source_lookup import LetterQuery, RecordQuery

router = APIRouter()
MEDIA_TYPES = {".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
FILES = {path.name: path for path in STATIC.iterdir() if path.suffix in MEDIA_TYPES}
"""The bundle. It holds no data, yet it requires a login like all other routes."""
READERS = 8
"""Pipelines that one answer reads at the same time."""
Number = Annotated[int, Path(ge=1, le=10**12)]
Name = Annotated[str, Path(min_length=1, max_length=63)]
ScopeText = Annotated[str, Field(max_length=80)]


@router.get("/static/{name}")
def static(name: Name) -> Response:
    """A file of the bundle, as it is written."""
    if name not in FILES:
        raise HTTPException(404, "Not Found")
    return FileResponse(FILES[name], media_type=MEDIA_TYPES[FILES[name].suffix])


@router.get("/static/{version}/{name}")
def versioned_static(version: Name, name: Name) -> Response:
    """The same under a path that changes with the bundle, so that browsers keep it; an entry has its imports."""
    entry = name in ENTRIES
    response = Response(join_modules(STATIC / name), media_type=MEDIA_TYPES[".js"]) if entry else static(name)
    if version == VERSION:  # another server of a rolling upgrade may have named it
        response.headers["Cache-Control"] = "private, max-age=31536000, immutable"
    return response


@router.get("/pipelines")
def pipelines(user: GetUserDep, session: SessionDep) -> list[PipelineFacts]:
    """Pipelines that the user may see; it does not read the warehouse, so a page has them at once."""
    seen = [name for name in history_cache.list_pipelines(shared_context()) if may("GET", name, user, session)]
    return [
        describe_pipeline(
            name,
            session,
            may_trigger=may("POST", name, user, session),
            may_see_payloads=may_see_payloads(name, user, session),
        )
        for name in seen
    ]


@router.get("/verdicts")
def verdicts(user: GetUserDep, session: SessionDep) -> list[PipelineFacts]:
    """The same pipelines, each with its verdict; several are read at the same time."""
    found = pipelines(user, session)
    schedules = [find_dag(one.name, session).schedule for one in found]
    with ThreadPoolExecutor(READERS) as pool:
        judged = pool.map(partial(health.get_verdict, shared_context()), [one.name for one in found], schedules)
        return [replace(one, verdict=verdict) for one, verdict in zip(found, judged, strict=True)]


class HistoryParams(BaseModel):
    """The query of a history; see `HistoryQuery`."""

    model_config = ConfigDict(extra="forbid")

    status: CheckpointStatus | None = None
    timeline: str | None = Field(None, max_length=63)
    pinned: bool = False
    text: str = Field("", max_length=250)
    since: datetime | None = None
    until: datetime | None = None
    sort: HistorySort = "-id"
    limit: int = Field(25, ge=0, le=100)
    offset: int = Field(0, ge=0, le=1_000_000)
    scope: ScopeText = ALL
    more: bool = True


@router.get("/pipelines/{pipeline}/checkpoints")
def checkpoints(
    pipeline: Readable, asked: Annotated[HistoryParams, Query()], session: SessionDep
) -> CheckpointsOverview:
    """Flink's `/jobs/:id/checkpoints`: counts, summary, latest, history."""
    query = HistoryQuery(**asked.model_dump(exclude={"scope", "more"}))
    schedule = find_dag(pipeline, session).schedule
    return overview.get_overview(shared_context(), pipeline, query, asked.scope, schedule, more=asked.more)


@router.get("/pipelines/{pipeline}/checkpoints/config")
def config(pipeline: Readable, session: SessionDep) -> CheckpointConfig:
    """Flink's `/jobs/:id/checkpoints/config`."""
    return add_dag_config(details_page.get_config(shared_context(), pipeline), pipeline, session)


@router.get("/pipelines/{pipeline}/checkpoints/series")
def series(
    pipeline: Readable,
    last: Annotated[int, Query(ge=1, le=1000)] = 100,
    scope: Annotated[str, Query(max_length=80)] = LIVE,
) -> ChartSeries:
    """The points and marks of the charts, oldest first."""
    return overview.list_points(shared_context(), pipeline, last, scope)


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
def due(
    pipeline: Readable,
    seen: SeesPayloads,
    checkpoint: Number,
    uid: Name,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
) -> DueTimes:
    """The open windows or the timers of an operator at a checkpoint: how many, and when the next ones are due.

    The keys are left out for users who may not see payloads.
    """
    return details_page.list_due_times(shared_context(), pipeline, checkpoint, uid, limit, with_keys=seen)


@router.get("/pipelines/{pipeline}/checkpoints/lineage/{checkpoint}")
def lineage(pipeline: Readable, checkpoint: Number) -> LineageGraph:
    """The lineage of one checkpoint as nodes and edges."""
    return graphs.build_graph(shared_context(), pipeline, checkpoint)


@router.get("/pipelines/{pipeline}/lineage/columns")
def columns(
    pipeline: Readable,
    checkpoint: Annotated[int | None, Query(ge=1, le=10**12)] = None,
    column: Annotated[str | None, Query(min_length=1, max_length=400)] = None,
) -> ColumnLineage:
    """The columns of a pipeline as a checkpoint recorded them, and the lineage of one of them."""
    return column_answers.recorded_columns(shared_context(), pipeline, checkpoint).answer(column)


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
def records(pipeline: Payloads, checkpoint: Number, asked: Annotated[RecordParams, Query()]) -> RecordPage:
    """Records that a checkpoint read, as far as Kafka still has them; a bounded read."""
    return record_answers.read_records(shared_context(), pipeline, checkpoint, RecordQuery(**dict(asked)))


class LetterParams(BaseModel):
    """The query of dead letters; see `LetterQuery`."""

    model_config = ConfigDict(extra="forbid")

    uid: str = Field(min_length=1, max_length=63)
    reason: str | None = Field(None, max_length=300)
    limit: int = Field(25, ge=1, le=100)
    offset: int = Field(0, ge=0, le=10**9)


@router.get("/pipelines/{pipeline}/checkpoints/details/{checkpoint}/dead-letters")
def dead_letters(pipeline: Payloads, checkpoint: Number, asked: Annotated[LetterParams, Query()]) -> DeadLetterPage:
    """Records that an operator could not apply in a checkpoint, with the reasons."""
    return record_answers.read_dead_letters(shared_context(), pipeline, checkpoint, LetterQuery(**dict(asked)))


@router.get("/pipelines/{pipeline}/checkpoints/details/{checkpoint}/rejections")
def rejections(pipeline: Readable, checkpoint: Number) -> Rejections:
    """How many records each operator could not apply in a checkpoint, by reason."""
    return details_page.count_rejections(shared_context(), pipeline, checkpoint)


class CompareParams(BaseModel):
    """The query of a comparison; see `ComparisonQuery`."""

    model_config = ConfigDict(extra="forbid")

    left: str | None = Field(None, min_length=1, max_length=80)
    right: str = Field("live", min_length=1, max_length=80)
    uid: str | None = Field(None, max_length=63)
    limit: int = Field(100, ge=0, le=100)


@router.get("/pipelines/{pipeline}/compare")
def compare(pipeline: Readable, seen: SeesPayloads, asked: Annotated[CompareParams, Query()]) -> CheckpointComparison:
    """Two restore points: how many keys of each state and rows of each sink differ, and the first of them.

    Keys, rows and sums are left out for users who may not see payloads.
    """
    found = comparison.compare_restore_points(shared_context(), pipeline, ComparisonQuery(**dict(asked)))
    return found if seen else comparison.without_payloads(found)


@router.get("/pipelines/{pipeline}/timelines")
def timelines(pipeline: Readable) -> list[TimelineNode]:
    """The tree of timelines."""
    return overview.list_timelines(shared_context(), pipeline)


@router.get("/pipelines/{pipeline}/publications")
def publications(pipeline: Readable, user: GetUserDep, session: SessionDep) -> list[PublicationLag]:
    """Publications: the checkpoint that each target has, how far it is behind, and why."""
    return publication_lag.list_publication_lags(
        shared_context(), pipeline, lambda names: find_tasks(pipeline, names, user, session)
    )


@router.get("/pipelines/{pipeline}/publications/{publication}")
def publication_steps(
    pipeline: Readable, publication: Name, limit: Annotated[int, Query(ge=1, le=100)] = 20
) -> PublicationDetails:
    """A publication with its last steps, newest first."""
    return publication_lag.describe_publication(shared_context(), pipeline, publication, limit)


@router.get("/pipelines/{pipeline}/dead-letters")
def live_dead_letters(pipeline: Readable) -> DeadLetterOverview:
    """Dead letters of the live timeline by operator and reason, and the requests to redrive them."""
    return overview.list_dead_letters(shared_context(), pipeline)


@router.get("/pipelines/{pipeline}/dead-letters/{uid}")
def live_letters(
    pipeline: Payloads,
    uid: Name,
    reason: Annotated[str | None, Query(max_length=300)] = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 25,
    offset: Annotated[int, Query(ge=0, le=10**9)] = 0,
) -> LiveLetterPage:
    """Records of the live timeline that an operator could not apply and did not get again, newest first."""
    query = LetterQuery(uid=uid, reason=reason, limit=limit, offset=offset)
    return record_answers.read_live_letters(shared_context(), pipeline, query)


@router.get("/pipelines/{pipeline}/event-time")
def event_times(pipeline: Readable) -> EventTimeFacts:
    """Watermarks and frontiers at the newest checkpoint of the live timeline, and what holds them back."""
    return event_time.get_event_time(shared_context(), pipeline)


@router.get("/pipelines/{pipeline}/backlog")
def backlog(pipeline: Readable) -> BacklogFacts:
    """How far the live timeline is behind its topics, and the progress of a run that makes several checkpoints."""
    return overview.get_backlog(shared_context(), pipeline)


@router.get("/pipelines/{pipeline}/savepoints")
def savepoints(pipeline: Readable, disposed: bool = False) -> list[SavepointFacts]:
    """Savepoints, newest first."""
    return overview.list_savepoints(shared_context(), pipeline, disposed=disposed)


@router.get("/pipelines/{pipeline}/savepoints/{name}/disposal")
def disposal(pipeline: Readable, name: Name) -> DisposalPreview:
    """The dry run of a disposal."""
    return previews.preview_disposal(shared_context(), pipeline, name)


class BeginningParams(BaseModel):
    """Where a restore, a backfill or a transform begins: exactly one of the three."""

    model_config = ConfigDict(extra="forbid")

    checkpoint: int | None = Field(None, ge=1, le=10**12)
    savepoint: str | None = Field(None, max_length=63)
    as_of: AwareDatetime | None = None

    def request(self) -> RestoreRequest:
        """The same for the planners.

        Raises:
            UsageError: none is given, or several.
        """
        as_of_ms = None if self.as_of is None else to_ms(self.as_of)
        return RestoreRequest(checkpoint=self.checkpoint, savepoint=self.savepoint, as_of_ms=as_of_ms)


@router.get("/pipelines/{pipeline}/restore-plan")
def restore_plan(pipeline: Readable, asked: Annotated[BeginningParams, Query()]) -> RestorePreview:
    """The dry run of a restore."""
    return previews.preview_restore(shared_context(), pipeline, asked.request())


@router.get("/pipelines/{pipeline}/backfill-plan")
def backfill_plan(pipeline: Readable, asked: Annotated[BeginningParams, Query()]) -> BackfillPreview:
    """The dry run of a backfill to the live head."""
    return previews.preview_backfill(shared_context(), pipeline, asked.request())


@router.get("/pipelines/{pipeline}/states")
def states(pipeline: Readable, asked: Annotated[BeginningParams, Query()]) -> QueryableStates:
    """The states of a restore point with their columns, which a transform or a patch begins with."""
    return previews.list_queryable_states(shared_context(), pipeline, asked.request())


class CalendarParams(BaseModel):
    """The query of a retention calendar; see `WhatIf`."""

    model_config = ConfigDict(extra="forbid")

    keep: str | None = Field(None, max_length=1000)
    without: str | None = Field(None, min_length=1, max_length=63)
    sizes: bool = False
    more: bool = True


@router.get("/pipelines/{pipeline}/retention-calendar")
def calendar(pipeline: Readable, asked: Annotated[CalendarParams, Query()], session: SessionDep) -> RetentionCalendar:
    """The next sweep by checkpoint, from manifests and the rule alone."""
    what_if = WhatIf(keep=asked.keep, without=asked.without)
    found = retention_calendar.get_calendar(shared_context(), pipeline, what_if, sizes=asked.sizes, more=asked.more)
    dag = find_retention(pipeline, session)
    return replace(
        found,
        dag_id=dag.dag_id,
        is_paused=dag.is_paused,
        next_run=None if dag.next_run is None else dag.next_run.isoformat(),
        grace_ms=found.grace_ms if dag.grace_ms is None else dag.grace_ms,
    )


@router.get("/pipelines/{pipeline}/actions")
def actions(pipeline: Readable, user: GetUserDep, session: SessionDep) -> PipelineActions:
    """The actions that the user may start, each with its DAG."""
    return list_actions(pipeline, user, session)


@router.get("/pipelines/{pipeline}/retention-plan")
def retention_plan(pipeline: Readable) -> RetentionPreview:
    """The dry run of retention; lists every file."""
    return previews.preview_retention(shared_context(), pipeline)


@router.get("/pipelines/{pipeline}/state/{uid}/origin")
def origin(
    pipeline: Payloads,
    uid: Name,
    key: Annotated[list[Annotated[str, Query(max_length=1000)]], Query(min_length=1, max_length=16)],
    checkpoint: Annotated[int | None, Query(ge=1, le=10**12)] = None,
) -> RowOrigin:
    """Which checkpoint changed a key last, in which DAG run, and from which offsets."""
    return row_origin.find_origin(shared_context(), pipeline, uid, key, checkpoint)


@router.get("/pipelines/{pipeline}/sinks/{name}/origin")
def sink_origin(
    pipeline: Payloads,
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


@router.get("/dags/{dag_id}/outcome", dependencies=[Depends(requires_access_dag("GET", DagAccessEntity.TASK_LOGS))])
def outcome(
    dag_id: Annotated[str, Path(max_length=250)],
    run_id: Annotated[str, Query(min_length=1, max_length=250)],
    session: SessionDep,
) -> RunOutcome:
    """How a DAG run ended: the errors of its tasks, and its results."""
    found = describe_run(dag_id, run_id, session)
    if found is None:
        raise HTTPException(404, "Not Found")
    return found


@router.get("/runs")
def owner_of_run(
    run_id: Annotated[str, Query(min_length=1, max_length=250)],
    user: GetUserDep,
    session: SessionDep,
    dag_id: Annotated[str, Query(max_length=250)] = "",
) -> RunOwner:
    """The DAG of a run, which may be none: a checkpoint of the command line has an origin, but no run."""
    return find_owner(run_id, dag_id, user, session)
