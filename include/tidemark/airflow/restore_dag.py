"""`restore_dag()`: a trigger form that makes an older checkpoint live again, plan >> restore (L4)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow.sdk import DAG, Context, Param
from airflow.sdk.exceptions import AirflowSkipException
from pydantic import AwareDatetime, Field

from tidemark.airflow.airflow_metrics import observe
from tidemark.airflow.checkpoint_tasks import PLAN, Ids, open_tidemark
from tidemark.airflow.form_answers import (
    SELDOM,
    PipelinesOperator,
    answering,
    asked_for,
    number_field,
    pipeline_field,
    savepoint_field,
    switch,
    text_field,
)
from tidemark.airflow.form_dag import BeginningConf, beginning_fields, form_dag
from tidemark.declare.pipeline import Pipeline
from tidemark.model.core.names import parse_id

if TYPE_CHECKING:
    from tidemark.coordinator.recovery.restore_request import RestoreRequest

RESTORE = "restore"


class RestoreConf(BeginningConf):
    """The `conf` of a DAG run; one of `savepoint`, `checkpoint`, `as_of` and `newest_whole` says where to begin.

    Attributes:
        savepoint: its name.
        checkpoint: `chk-17` or `17`, of any timeline.
        as_of: the newest checkpoint whose logical time is not after this.
        newest_whole: the newest one of which nothing is damaged (I4).
        max_fallback: how many damaged ones that may pass over; empty: as many as `tidemark restore` does.
        claim, restore_sinks, accept_loss: as `tidemark restore` takes them.
        rename: uids that the state had, with those that it shall have.
        execute: do it; else only the plan is made and told.
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
        """What is asked for; the DAG run's id is that of the request, so a task that is repeated does it once.

        Raises:
            UsageError: no restore point, or several.
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

    def asked(self, context: Context) -> RestoreConf:
        """The form, checked: the same in every task of the DAG run.

        Raises:
            UsageError, NotFoundError: it does not fit.
        """
        return asked_for(RestoreConf, context, self.pipelines)


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
        from tidemark.answers.bodies import body_of
        from tidemark.operations import timelines
        from tidemark.operations.timelines import describe_restore

        with answering():
            conf = self.asked(context)
            plan = timelines.plan_restore(open_tidemark(), conf.pipeline, conf.request(context["dag_run"].run_id))
            for name, value in body_of(describe_restore(plan)).items():
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
        from tidemark.operations import timelines

        planned: Ids = context["ti"].xcom_pull(task_ids=PLAN)
        with answering():
            conf = self.asked(context)
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
    return form_dag(
        dag_id,
        "Restore: make an older checkpoint live again",
        pipelines=pipelines,
        form=_form,
        page=_PAGE,
        tasks={PLAN: PlanRestoreOperator, RESTORE: ExecuteRestoreOperator},
    )


_PAGE = """### A restore on demand
Begins a new timeline at a checkpoint and makes it live. It copies nothing and deletes nothing: the old timeline stays
readable. Task `plan` tells what would be left, read again or lost, and what happens to each sink. Task `restore` does
it where `execute` is on, and is skipped otherwise.

REST: `POST /api/v2/dags/restore/dagRuns` with
`{"logical_date": null, "conf": {"pipeline": "...", "savepoint": "before-upgrade", "execute": true}}`.

`tidemark timeline list PIPELINE` draws the timelines.
"""


def _form(pipelines: list[str]) -> dict[str, Param]:
    where = "One of savepoint, checkpoint, time and newest whole."
    return {
        "pipeline": pipeline_field(pipelines),
        "savepoint": savepoint_field(pipelines[0], "Savepoint", where),
        "checkpoint": text_field("Checkpoint", f"As in chk-17, of any timeline. {where}"),
        "as_of": text_field(
            "As of", f"The newest checkpoint of the live timeline at this time. {where}", format="date-time"
        ),
        "newest_whole": switch("Newest whole", f"The newest checkpoint of which nothing is damaged. {where}"),
        "execute": switch("Execute", "Off: a dry run. Task plan tells what would happen, and nothing does."),
        "restore_sinks": switch("Restore sinks", "Delta sinks go back with the state. Off: they keep their rows."),
        **_seldom(),
    }


def _seldom() -> dict[str, Param]:
    lost = "Restore although Kafka has deleted records that come after."
    over = "How many damaged checkpoints newest whole may pass over. Empty: three."
    return {
        "max_fallback": number_field("Max fallback", over, section=SELDOM),
        "claim": switch("Claim", "The savepoint ends; the new timeline keeps its checkpoint.", section=SELDOM),
        "accept_loss": switch("Accept loss", lost, section=SELDOM),
        **beginning_fields("Go on from"),
        "rename": Param(
            None,
            type=["null", "object"],
            title="Rename",
            description='Uids of operators, as in {"old": "new"}. Empty: as declared.',
            section=SELDOM,
        ),
    }
