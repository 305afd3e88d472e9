"""`restore_dag()`: a trigger form that goes back to an older checkpoint; its tasks are plan >> restore."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Unpack

from airflow.sdk import DAG, Context, Param
from airflow.sdk.exceptions import AirflowSkipException
from pydantic import AwareDatetime, Field

from tidemark.airflow.airflow_metrics import observe
from tidemark.airflow.checkpoint_tasks import Ids, open_tidemark
from tidemark.airflow.form_answers import (
    RARE,
    PipelinesOperator,
    fail_on_refusal,
    number_field,
    pipeline_field,
    read_conf,
    savepoint_field,
    switch,
    text_field,
)
from tidemark.airflow.form_dags import BeginningConf, FormKind, FormOptions, beginning_fields, form_dag
from tidemark.airflow.task_names import PLAN
from tidemark.declare.pipeline import Pipeline
from tidemark.model.core.names import parse_id

if TYPE_CHECKING:
    from tidemark.coordinator.recovery.restore_request import RestoreRequest

RESTORE = "restore"


class RestoreConf(BeginningConf):
    """The `conf` of a DAG run; exactly one of `savepoint`, `checkpoint`, `as_of` and `newest_whole` is set.

    Attributes:
        savepoint: the savepoint's name.
        checkpoint: `chk-17` or `17`, of any timeline.
        as_of: selects the newest checkpoint whose logical time is not after this time.
        newest_whole: selects the newest undamaged checkpoint, like `tidemark restore --latest-valid`.
        max_fallback: how many damaged checkpoints `newest_whole` may skip; None = the default of `tidemark restore`.
        claim, restore_sinks, accept_loss: as for `tidemark restore`.
        rename: gives the state of the operator in the key to the operator in the value, by uid.
        execute: carry out the restore; otherwise only plan it and show the plan.
    """

    savepoint: str | None = None
    checkpoint: str | None = None
    as_of: AwareDatetime | None = None
    newest_whole: bool = Field(False, strict=True)
    max_fallback: int | None = Field(None, strict=True, ge=1)
    claim: bool = Field(False, strict=True)
    restore_sinks: bool = Field(False, strict=True)
    accept_loss: bool = Field(False, strict=True)
    rename: dict[str, str] | None = None
    execute: bool = Field(False, strict=True)

    def request(self, run_id: str) -> "RestoreRequest":
        """Returns the request. It has the DAG run's id, so a repeated task carries it out only once.

        Raises:
            UsageError: there is no restore point, or there are several.
        """
        from tidemark.coordinator.plans.initial_offsets import to_ms
        from tidemark.coordinator.recovery.latest_valid import MAX_FALLBACK
        from tidemark.coordinator.recovery.restore_request import RestoreRequest

        return RestoreRequest(
            savepoint=self.savepoint or None,
            checkpoint=parse_id(self.checkpoint) if self.checkpoint else None,
            as_of_ms=None if self.as_of is None else to_ms(self.as_of),
            newest_whole=self.newest_whole,
            max_fallback=MAX_FALLBACK if self.max_fallback is None else self.max_fallback,
            claim=self.claim,
            restore_sinks=self.restore_sinks,
            allow_non_restored_state=self.allow_non_restored_state,
            accept_loss=self.accept_loss,
            force=self.force,
            renamed=self.rename or {},
            request=run_id,
        )


class RestoreOperator(PipelinesOperator):
    """A task of the restore DAG."""

    def read_form(self, context: Context) -> RestoreConf:
        """Returns the validated form, which is the same in every task of the DAG run.

        Raises:
            UsageError, NotFoundError: the form is invalid.
        """
        return read_conf(RestoreConf, context, self.pipelines)


class PlanRestoreOperator(RestoreOperator):
    """The dry run: shows what the restore would leave behind, read again and lose, also per sink. Writes nothing."""

    ui_color = "#e8f0fe"

    def execute(self, context: Context) -> Ids:
        """Returns `{"pipeline", "checkpoint"}`; the next task restores this checkpoint.

        Raises:
            AirflowFailException: the form is invalid, or Kafka lacks records; the message says what to do next.
            TidemarkError: the store or Kafka did not answer; the task is retried.
        """
        from tidemark.model.checkpoint.codec import body_of
        from tidemark.operations import timelines
        from tidemark.operations.timelines import describe_restore

        with fail_on_refusal():
            conf = self.read_form(context)
            plan = timelines.plan_restore(open_tidemark(), conf.pipeline, conf.request(context["dag_run"].run_id))
            for name, value in body_of(describe_restore(plan)).items():
                self.log.info("%s: %s", name, value)
            if not conf.accept_loss:
                plan.refuse_gaps()
        return {"pipeline": conf.pipeline, "checkpoint": plan.checkpoint.plan.name}


class ExecuteRestoreOperator(RestoreOperator):
    """Starts a new live timeline at the checkpoint. Copies nothing; the old timeline stays readable."""

    ui_color = "#fce8e6"

    def execute(self, context: Context) -> Ids:
        """Returns the result of `plan` and the new timeline; if it is repeated, it finds the one that it made.

        Raises:
            AirflowSkipException: the form requests only the plan.
            AirflowFailException: another restore or promote came first.
            TidemarkError: the store did not answer; the task is retried.
        """
        from tidemark.operations import timelines

        planned: Ids = context["ti"].xcom_pull(task_ids=PLAN)
        with fail_on_refusal():
            conf = self.read_form(context)
            if not conf.execute:
                raise AirflowSkipException("a dry run: trigger it again with execute on")
            request = conf.request(context["dag_run"].run_id)
            if request.savepoint is None:
                at = parse_id(planned["checkpoint"])
                request = replace(request, checkpoint=at, as_of_ms=None, newest_whole=False)
            opened = open_tidemark()
            _, done = timelines.restore(opened, conf.pipeline, request)
        observe(opened, conf.pipeline)
        left = ", ".join(c.plan.name for c in done.left) or "nothing"
        self.log.info("timeline %s is live; it begins at %s", done.genesis.timeline, planned["checkpoint"])
        self.log.info("left behind on %s, still readable: %s", done.closing.timeline, left)
        return {**planned, "timeline": done.genesis.timeline}


def restore_dag(pipelines: Sequence[Pipeline], **options: Unpack[FormOptions]) -> DAG:
    """Creates the DAG that restores on demand; call it at the module level of a DAG file.

    Args:
        pipelines: the pipelines that the form offers.
        **options: see `FormOptions`.

    Raises:
        DeclarationError: `pipelines` is empty, or an option is invalid.
    """
    return form_dag(_RESTORE_DAG, pipelines, options)


_PAGE = """### A restore on demand
Starts a new live timeline at a checkpoint. It copies nothing and deletes nothing: the old timeline stays readable. Task
`plan` shows what the restore would leave behind, read again or lose, and what happens to each sink. Task `restore`
carries it out if `execute` is on, and is skipped otherwise.

REST: `POST /api/v2/dags/restore/dagRuns` with
`{"logical_date": null, "conf": {"pipeline": "...", "savepoint": "before-upgrade", "execute": true}}`.

`tidemark timeline list PIPELINE` draws the timelines.
"""


def _fields(pipelines: list[str]) -> dict[str, Param]:
    where = "Give exactly one of savepoint, checkpoint, as of and latest valid."
    return {
        "pipeline": pipeline_field(pipelines),
        "savepoint": savepoint_field(pipelines[0], "Savepoint", where),
        "checkpoint": text_field("Checkpoint", f"For example chk-17, of any timeline. {where}"),
        "as_of": text_field(
            "As of", f"The live timeline's newest checkpoint at this time. {where}", format="date-time"
        ),
        "newest_whole": switch("Latest valid", f"The live timeline's newest undamaged checkpoint. {where}"),
        "execute": switch("Execute", "Off: a dry run. Task plan shows the effect, and nothing is written."),
        "restore_sinks": switch("Restore sinks", "Restore Delta sinks with the state. Off: they keep their rows."),
        **_seldom(),
    }


def _seldom() -> dict[str, Param]:
    lost = "Restore even if Kafka has deleted records that follow the checkpoint."
    over = "How many damaged checkpoints latest valid may skip. Empty: three."
    return {
        "max_fallback": number_field("Max fallback", over, section=RARE),
        "claim": switch("Claim", "End the savepoint; the new timeline keeps its checkpoint.", section=RARE),
        "accept_loss": switch("Accept loss", lost, section=RARE),
        **beginning_fields("Continue from"),
        "rename": Param(
            None,
            type=["null", "object"],
            title="Rename",
            description='Gives the state of one operator to another, by uid: {"old": "new"}. Empty: as declared.',
            section=RARE,
        ),
    }


_RESTORE_DAG = FormKind(
    summary="Restore: go back to an older checkpoint",
    fields=_fields,
    page=_PAGE,
    tasks={PLAN: PlanRestoreOperator, RESTORE: ExecuteRestoreOperator},
)
