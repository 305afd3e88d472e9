"""`savepoint_dag()`: a trigger form that pins a checkpoint under a name; its tasks are plan >> create."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Unpack

from airflow.sdk import DAG, Asset, Context, Param, chain

from tidemark.airflow.assets import savepoint_asset
from tidemark.airflow.checkpoint_tasks import Ids, announce, open_tidemark
from tidemark.airflow.dag_options import SharedOptions, shared_arguments
from tidemark.airflow.form_answers import (
    PipelineConf,
    PipelinesOperator,
    fail_on_refusal,
    names_of,
    pipeline_field,
    read_conf,
    text_field,
)
from tidemark.airflow.retries import retry_arguments
from tidemark.airflow.task_names import PLAN
from tidemark.coordinator.checkpoints.restart import FixedDelay
from tidemark.declare.pipeline import Pipeline
from tidemark.errors import DeclarationError
from tidemark.model.core.names import parse_id
from tidemark.model.core.savepoint_expiry import NEVER, expiry_ms
from tidemark.model.retention.savepoint import SavepointRequest, checked_savepoint

CREATE = "create"
_DATE = "2013-07-01T0000"


class SavepointConf(PipelineConf):
    """The `conf` of a DAG run.

    Attributes:
        name: the savepoint's name; a scheduled run may leave it empty.
        checkpoint: `chk-17` or `17`, of any timeline; None = the newest one of the live timeline.
        note: a note for people.
        expires: `30d`, `12h`, or an ISO 8601 time; None or `never` = it does not expire.
    """

    name: str
    checkpoint: str | None = None
    note: str | None = None
    expires: str | None = None


class SavepointOperator(PipelinesOperator):
    """A task of the savepoint DAG."""

    def read_form(self, context: Context) -> tuple[str, SavepointRequest]:
        """Returns the pipeline and the request, which are the same in every try of the DAG run.

        Raises:
            UsageError, NameRefusedError, NotFoundError: the form is invalid.
        """
        run = context["dag_run"]
        conf = read_conf(SavepointConf, context, self.pipelines)
        return conf.pipeline, SavepointRequest(
            name=conf.name or self._scheduled_name(context),
            owner=run.triggering_user_name or "airflow",
            origin=f"{run.dag_id} {run.run_id}",
            checkpoint=parse_id(conf.checkpoint) if conf.checkpoint else None,
            note=conf.note or "",
            expires_at_ms=expiry_ms(conf.expires, open_tidemark().clock.now_ms()) if conf.expires else None,
        )

    def _scheduled_name(self, context: Context) -> str:
        """Returns the name that a scheduled run gives its savepoint; None on demand."""
        run = context["dag_run"]
        at = run.data_interval_end or run.logical_date
        return "" if run.run_type != "scheduled" or at is None else f"{run.dag_id}-{at:%Y-%m-%dT%H%M}"


class PlanSavepointOperator(SavepointOperator):
    """Checks the form: pipeline, name, checkpoint and expiry. Writes nothing; an error says what to do next."""

    ui_color = "#e8f0fe"

    def execute(self, context: Context) -> Ids:
        """Returns `{"pipeline", "savepoint", "checkpoint"}`; the next task pins exactly this checkpoint.

        Raises:
            AirflowFailException: the form is invalid, or the name is taken; the message says what to do next.
            TidemarkError: the store did not answer; the task is retried.
        """
        from tidemark.operations import savepoints as savepoint_operations

        with fail_on_refusal():
            name, request = self.read_form(context)
            checkpoint = savepoint_operations.open_savepoints(open_tidemark(), name).plan(request)
        self.log.info("savepoint %s would pin %s of %s", request.name, checkpoint.plan.name, name)
        return {"pipeline": name, "savepoint": request.name, "checkpoint": checkpoint.plan.name}


class CreateSavepointOperator(SavepointOperator):
    """Pins the checkpoint, and adds an event to the pipeline's savepoint asset. Copies nothing and needs no Spark.

    Args:
        assets: each pipeline's savepoint asset, by the pipeline's name.
        **kwargs: passed to SavepointOperator.
    """

    ui_color = "#fce8e6"

    def __init__(self, *, assets: dict[str, Asset], **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(pipelines=list(assets), outlets=list(assets.values()), **kwargs)
        self.assets = assets

    def execute(self, context: Context) -> Ids:
        """Returns the result of `plan`; if it is repeated, it finds the savepoint that it created."""
        from tidemark.model.checkpoint.codec import body_of
        from tidemark.operations import savepoints as savepoint_operations

        planned: Ids = context["ti"].xcom_pull(task_ids=PLAN)
        opened = open_tidemark()
        with fail_on_refusal():
            name, request = self.read_form(context)
            savepoints = savepoint_operations.open_savepoints(opened, name)
            made = savepoints.create(replace(request, checkpoint=parse_id(planned["checkpoint"])))
        # Only this pipeline's asset gets an event, although the graph draws an edge to each.
        self.outlets = [self.assets[name]]
        facts = body_of(savepoint_operations.describe_savepoint(opened, name, made))
        announce(context, [self.assets[name]], facts, [made.name])
        self.log.info("%s", "\n".join(f"{field}: {value}" for field, value in facts.items()))
        return planned


def savepoint_dag(
    pipelines: Sequence[Pipeline],
    *,
    dag_id: str = "savepoint",
    schedule: str | None = None,
    start: datetime | None = None,
    expires: str | None = None,
    **options: Unpack[SharedOptions],
) -> DAG:
    """Creates the DAG that makes savepoints on demand or on a schedule; call it at the module level of a DAG file.

    Args:
        pipelines: the pipelines that the form offers; a schedule needs exactly one.
        dag_id: the DAG's id. Scheduled savepoints are named `<dag_id>-<date>`.
        schedule: cron expression or preset; None = on demand only.
        start: no scheduled run begins before this time.
        expires: the default expiry, for example `30d`, as in `SavepointConf`. None = never.
        **options: `default_args`, `tags` and `pool`, see `SharedOptions`.

    Raises:
        DeclarationError: `pipelines` is empty, there is a schedule for several pipelines, or an option is invalid.
        UsageError, NameRefusedError: the expiry or a name is invalid.
    """
    names = names_of(pipelines, "savepoint_dag")
    if schedule and len(pipelines) > 1:
        what = f"savepoint_dag() with schedule {schedule!r} and {len(pipelines)} pipelines"
        raise DeclarationError(what, next="pass one pipeline, because a scheduled run has no form.")
    checked_savepoint(f"{dag_id}-{_DATE}")
    expiry_ms(expires or NEVER, 0)
    assets = {pipeline.name: savepoint_asset(pipeline) for pipeline in pipelines}
    with DAG(
        dag_id,
        description=f"Savepoints of {', '.join(assets)}: pin a checkpoint under a name",
        schedule=schedule,
        start_date=start,
        catchup=False,
        params=_form(names, expires),
        is_paused_upon_creation=None if schedule else False,
        doc_md=_PAGE,
        **shared_arguments(["tidemark", *names], options),
    ) as dag:
        _tasks(assets)
    return dag


def _tasks(assets: dict[str, Asset]) -> None:
    shared = retry_arguments(FixedDelay(attempts=3))
    chain(
        PlanSavepointOperator(task_id=PLAN, doc_md=PlanSavepointOperator.__doc__, pipelines=list(assets), **shared),
        CreateSavepointOperator(task_id=CREATE, doc_md=CreateSavepointOperator.__doc__, assets=assets, **shared),
    )


_PAGE = """### A savepoint on demand
Pins a completed checkpoint under a name, so that retention keeps it and you can find it. A savepoint copies nothing,
and you can create it while the pipeline runs, is paused or fails. Task `plan` checks the form; task `create` pins.

REST: `POST /api/v2/dags/savepoint/dagRuns` with
`{"logical_date": null, "conf": {"pipeline": "...", "name": "before-upgrade"}}`.

`tidemark savepoint list PIPELINE` lists all savepoints.
"""


def _form(pipelines: list[str], expires: str | None) -> dict[str, Param]:
    return {
        "pipeline": pipeline_field(pipelines),
        "name": Param(
            "",
            type="string",
            title="Name",
            description="Letters, digits, '_', '.' and '-', for example before-upgrade. You can use a name only once.",
        ),
        "checkpoint": text_field(
            "Checkpoint", "For example chk-17, of any timeline. Empty: the newest one of the live timeline."
        ),
        "note": text_field("Note", "A note for people."),
        "expires": text_field("Expires", "30d, 12h, or a time such as 2030-01-31T00:00Z. Empty: never.", expires),
    }
