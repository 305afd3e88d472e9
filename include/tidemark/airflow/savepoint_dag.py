"""`savepoint_dag()`: a trigger form that pins a checkpoint under a name, plan >> create (G2, L1)."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from airflow.sdk import DAG, Asset, Context, Param, chain

from tidemark.airflow.assets import savepoint_asset
from tidemark.airflow.checkpoint_tasks import PLAN, Ids, announce, open_tidemark
from tidemark.airflow.form_answers import (
    PipelineConf,
    PipelinesOperator,
    answering,
    asked_for,
    names_of,
    pipeline_field,
    text_field,
)
from tidemark.airflow.retries import retry_arguments
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
        name: of the savepoint; a scheduled run may leave it empty.
        checkpoint: `chk-17` or `17`, of any timeline; None = the newest one of the live timeline.
        note: what it is for.
        expires: `30d`, `12h`, an ISO 8601 time; None or `never` = it does not.
    """

    name: str
    checkpoint: str | None = None
    note: str | None = None
    expires: str | None = None


class SavepointOperator(PipelinesOperator):
    """A task of the savepoint DAG."""

    def asked(self, context: Context) -> tuple[str, SavepointRequest]:
        """The pipeline, and what is asked for it: the same in every try of the DAG run.

        Raises:
            UsageError, NameRefusedError, NotFoundError: the form does not fit.
        """
        run = context["dag_run"]
        conf = asked_for(SavepointConf, context, self.pipelines)
        return conf.pipeline, SavepointRequest(
            name=conf.name or self._dated(context),
            owner=run.triggering_user_name or "airflow",
            origin=f"{run.dag_id} {run.run_id}",
            checkpoint=parse_id(conf.checkpoint) if conf.checkpoint else None,
            note=conf.note or "",
            expires_at_ms=expiry_ms(conf.expires, open_tidemark().clock.now_ms()) if conf.expires else None,
        )

    def _dated(self, context: Context) -> str:
        """The name that a schedule gives; none on demand."""
        run = context["dag_run"]
        at = run.data_interval_end or run.logical_date
        return "" if run.run_type != "scheduled" or at is None else f"{run.dag_id}-{at:%Y-%m-%dT%H%M}"


class PlanSavepointOperator(SavepointOperator):
    """Checks the form: pipeline, name, checkpoint, expiry. Writes nothing, and answers what to type."""

    ui_color = "#e8f0fe"

    def execute(self, context: Context) -> Ids:
        """Returns `{"pipeline", "savepoint", "checkpoint"}`; the checkpoint is fixed here, whatever completes later.

        Raises:
            AirflowFailException: the form does not fit, or the name is taken; the message says what to type.
            TidemarkError: the store did not answer; the task is retried.
        """
        from tidemark.operations import savepoints as savepoint_operations

        with answering():
            name, request = self.asked(context)
            checkpoint = savepoint_operations.open_savepoints(open_tidemark(), name).plan(request)
        self.log.info("savepoint %s would pin %s of %s", request.name, checkpoint.plan.name, name)
        return {"pipeline": name, "savepoint": request.name, "checkpoint": checkpoint.plan.name}


class CreateSavepointOperator(SavepointOperator):
    """Pins the checkpoint, and tells the pipeline's savepoint asset. Copies nothing, starts no Spark.

    Args:
        assets: the savepoint asset of each pipeline, by its name.
        **kwargs: as SavepointOperator takes them.
    """

    ui_color = "#fce8e6"

    def __init__(self, *, assets: dict[str, Asset], **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(pipelines=list(assets), outlets=list(assets.values()), **kwargs)
        self.assets = assets

    def execute(self, context: Context) -> Ids:
        """Returns what `plan` returned; a repetition finds the savepoint that it made."""
        from tidemark.answers.bodies import body_of
        from tidemark.operations import savepoints as savepoint_operations

        planned: Ids = context["ti"].xcom_pull(task_ids=PLAN)
        opened = open_tidemark()
        with answering():
            name, request = self.asked(context)
            savepoints = savepoint_operations.open_savepoints(opened, name)
            made = savepoints.create(replace(request, checkpoint=parse_id(planned["checkpoint"])))
        # One pipeline is told, though the graph draws an edge to each.
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
) -> DAG:
    """The DAG that makes savepoints on demand, or on a schedule (L2); called at the module level of a DAG file.

    Args:
        pipelines: the form offers these; one, where there is a schedule.
        dag_id: as Airflow shows it. Savepoints of a schedule are called `<dag_id>-<date>`.
        schedule: cron expression or preset; None = on demand only.
        start: no scheduled run before it.
        expires: of savepoints that do not say; `30d`, as in `SavepointConf`. None = never.

    Raises:
        DeclarationError: no pipelines, or a schedule for several.
        UsageError, NameRefusedError: an expiry or a name that does not fit.
    """
    names = names_of(pipelines, "savepoint_dag")
    if schedule and len(pipelines) > 1:
        what = f"savepoint_dag() with schedule {schedule!r} and {len(pipelines)} pipelines"
        raise DeclarationError(what, next="name one: a schedule has no form.")
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
        tags=["tidemark", *names],
        doc_md=_PAGE,
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
Pins a completed checkpoint under a name, so that retention leaves it alone and people find it. It copies nothing, and
works while the pipeline runs, is paused or is broken. Task `plan` checks the form and says what to type; `create` pins.

REST: `POST /api/v2/dags/savepoint/dagRuns` with
`{"logical_date": null, "conf": {"pipeline": "...", "name": "before-upgrade"}}`.

`tidemark savepoint list PIPELINE` lists them.
"""


def _form(pipelines: list[str], expires: str | None) -> dict[str, Param]:
    return {
        "pipeline": pipeline_field(pipelines),
        "name": Param(
            "",
            type="string",
            title="Name",
            description="Letters, digits, '_', '.' and '-', as in before-upgrade. A name is used once.",
        ),
        "checkpoint": text_field(
            "Checkpoint", "As in chk-17, of any timeline. Empty: the newest one of the live timeline."
        ),
        "note": text_field("Note", "What it is for."),
        "expires": text_field("Expires", "30d, 12h, or a time as in 2030-01-31T00:00Z. Empty: never.", expires),
    }
