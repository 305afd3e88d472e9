"""`restore_dag()`: a trigger form that makes an older checkpoint live again, plan >> restore (L4)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, BaseOperator, Context, Param, chain
from airflow.sdk.exceptions import AirflowSkipException
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from tidemark.airflow.answering import answering, offered, parsed
from tidemark.airflow.operators import PLAN, Ids, runtime
from tidemark.airflow.retrying import retry_arguments
from tidemark.coordinator.restart import FixedDelay
from tidemark.errors import DeclarationError
from tidemark.model.names import parse_id
from tidemark.pipeline import Pipeline

if TYPE_CHECKING:
    from tidemark.coordinator.restore_request import RestoreRequest

RESTORE = "restore"
_TEXT = ["null", "string"]


class RestoreConf(BaseModel):
    """The `conf` of a DAG run; one of `savepoint`, `checkpoint` and `as_of` says where to begin.

    Attributes:
        pipeline: one of those that the DAG names.
        savepoint: its name.
        checkpoint: `chk-17` or `17`, of any timeline.
        as_of: the newest checkpoint whose logical time is not after this.
        claim, restore_sinks, allow_non_restored_state, accept_loss, force: as `tidemark restore` takes them.
        rename: uids that the state had, with those that it shall have.
        execute: do it; else only the plan is made and told.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    pipeline: str
    savepoint: str | None = None
    checkpoint: str | None = None
    as_of: AwareDatetime | None = None
    claim: bool = Field(False, strict=True)
    restore_sinks: bool = Field(False, strict=True)
    allow_non_restored_state: bool = Field(False, strict=True)
    accept_loss: bool = Field(False, strict=True)
    force: bool = Field(False, strict=True)
    rename: dict[str, str] | None = None
    execute: bool = Field(False, strict=True)

    def request(self, run_id: str) -> "RestoreRequest":
        """What is asked for; the DAG run's id is that of the request, so a task that is repeated does it once.

        Raises:
            UsageError: no restore point, or several.
        """
        from tidemark.coordinator.restore_request import RestoreRequest
        from tidemark.coordinator.starts import to_ms

        return RestoreRequest(
            savepoint=self.savepoint or None,
            checkpoint=parse_id(self.checkpoint) if self.checkpoint else None,
            as_of_ms=None if self.as_of is None else to_ms(self.as_of),
            claim=self.claim,
            restore_sinks=self.restore_sinks,
            allow_non_restored_state=self.allow_non_restored_state,
            accept_loss=self.accept_loss,
            force=self.force,
            renamed=self.rename or {},
            request=run_id,
        )


class RestoreOperator(BaseOperator):
    """A task of the restore DAG.

    Args:
        pipelines: names that may be asked for.
        **kwargs: as BaseOperator takes them.
    """

    def __init__(self, *, pipelines: Sequence[str], **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(**kwargs)
        self.pipelines = list(pipelines)

    def asked(self, context: Context) -> RestoreConf:
        """The form, checked: the same in every task of the DAG run.

        Raises:
            UsageError, NotFoundError: it does not fit.
        """
        run = context["dag_run"]
        conf = parsed(RestoreConf, {**context["params"], **(run.conf or {})})
        offered(conf.pipeline, self.pipelines)
        return conf


class PlanRestoreOperator(RestoreOperator):
    """The dry run: what would be left, read again, lost, and what happens to each sink. Writes nothing."""

    ui_color = "#e8f0fe"

    def execute(self, context: Context) -> Ids:
        """Returns `{"pipeline", "checkpoint"}`; the checkpoint is fixed here.

        Raises:
            AirflowFailException: the form does not fit, or Kafka lacks what would be read; the message says what to
                type.
            TidemarkError: the store or Kafka did not answer; the task is retried.
        """
        from tidemark.wiring.recoveries import restore_facts

        with answering():
            conf = self.asked(context)
            plan = runtime().restore_plan(conf.pipeline, conf.request(context["dag_run"].run_id))
            for name, value in restore_facts(plan).items():
                self.log.info("%s: %s", name, value)
            if not conf.accept_loss:
                plan.refuse_gaps()
        return {"pipeline": conf.pipeline, "checkpoint": plan.checkpoint.plan.name}


class ExecuteRestoreOperator(RestoreOperator):
    """Makes a new timeline live, which begins at the checkpoint. Copies nothing; the old timeline stays readable."""

    ui_color = "#fce8e6"

    def execute(self, context: Context) -> Ids:
        """Returns what `plan` returned, with the new timeline; a repetition finds the one that it made.

        Raises:
            AirflowSkipException: the form asks for the plan only.
            AirflowFailException: another restore or promote came first.
            TidemarkError: the store did not answer; the task is retried.
        """
        planned: Ids = context["ti"].xcom_pull(task_ids=PLAN)
        with answering():
            conf = self.asked(context)
            if not conf.execute:
                raise AirflowSkipException("a dry run: trigger it again with execute on")
            request = conf.request(context["dag_run"].run_id)
            if request.savepoint is None:
                request = replace(request, checkpoint=parse_id(planned["checkpoint"]), as_of_ms=None)
            _, done = runtime().restore(conf.pipeline, request)
        left = ", ".join(c.plan.name for c in done.left) or "nothing"
        self.log.info("timeline %s is live, it begins at %s", done.genesis.timeline, planned["checkpoint"])
        self.log.info("left on %s, and readable there: %s", done.closing.timeline, left)
        return {**planned, "timeline": done.genesis.timeline}


def restore_dag(pipelines: Sequence[Pipeline], *, dag_id: str = "restore") -> DAG:
    """The DAG that restores on demand; called at the module level of a DAG file.

    Args:
        pipelines: the form offers these.
        dag_id: as Airflow shows it.

    Raises:
        DeclarationError: no pipelines.
    """
    if not pipelines:
        raise DeclarationError("restore_dag() without pipelines", next="name those that the form shall offer.")
    names = [pipeline.name for pipeline in pipelines]
    with DAG(
        dag_id,
        description="Restore: make an older checkpoint live again",
        schedule=None,
        catchup=False,
        max_active_runs=1,
        params=_form(names),
        tags=["tidemark"],
        doc_md=_PAGE,
    ) as dag:
        shared = {"pipelines": names, **retry_arguments(FixedDelay(attempts=3))}
        chain(
            PlanRestoreOperator(task_id=PLAN, doc_md=PlanRestoreOperator.__doc__, **shared),
            ExecuteRestoreOperator(task_id=RESTORE, doc_md=ExecuteRestoreOperator.__doc__, **shared),
        )
    return dag


_PAGE = """### A restore on demand
Begins a new timeline at a checkpoint and makes it live. It copies nothing and deletes nothing: the old timeline stays
readable. Task `plan` tells what would be left, read again or lost, and what happens to each sink. Task `restore` does
it where `execute` is on, and is skipped otherwise.

REST: `POST /api/v2/dags/restore/dagRuns` with
`{"logical_date": null, "conf": {"pipeline": "...", "savepoint": "before-upgrade", "execute": true}}`.

`tidemark timeline list PIPELINE` draws the timelines.
"""


def _flag(title: str, description: str) -> Param:
    return Param(False, type="boolean", title=title, description=description)


def _form(pipelines: list[str]) -> dict[str, Param]:
    where = "One of savepoint, checkpoint and time."
    gone = "Operators that are gone from the pipeline: leave their state behind."
    return {
        "pipeline": Param(pipelines[0], type="string", enum=pipelines, title="Pipeline"),
        "savepoint": Param(None, type=_TEXT, title="Savepoint", description=where),
        "checkpoint": Param(None, type=_TEXT, title="Checkpoint", description=f"As in chk-17. {where}"),
        "as_of": Param(
            None, type=_TEXT, format="date-time", title="As of", description=f"The newest one until then. {where}"
        ),
        "execute": _flag("Execute", "Off: only the plan is made and told."),
        "restore_sinks": _flag("Restore sinks", "Delta sinks go back with the state, instead of keeping their rows."),
        "claim": _flag("Claim", "The savepoint ends; the timeline keeps its checkpoint."),
        "allow_non_restored_state": _flag("Allow non-restored state", gone),
        "rename": Param(
            None, type=["null", "object"], title="Rename", description='Uids: {"old": "new"}. Empty: as declared.'
        ),
        "accept_loss": _flag("Accept loss", "Restore although Kafka has deleted records that come after."),
        "force": _flag("Force", "Go on from a savepoint that the pipeline was drained with."),
    }
