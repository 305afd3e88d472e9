"""`stop_dag()` and `resume_dag()`: trigger forms that stop a pipeline and its schedule, and resume them.

Tasks have no access to Airflow's database and cannot pause a DAG, so they store the wish in their task state. The
plugin's listener in the scheduler pauses or unpauses the DAGs that checkpoint the pipeline.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Unpack

from airflow.sdk import DAG, Context, Param
from pydantic import Field

from tidemark.airflow.form_answers import PipelineConf, pipeline_field, switch, text_field
from tidemark.airflow.form_dags import FormKind, FormOptions, form_dag
from tidemark.airflow.task_names import PAUSE_REQUEST, PLAN
from tidemark.airflow.verb_operators import CallVerbOperator, PlanVerbOperator, caller
from tidemark.declare.pipeline import Pipeline
from tidemark.errors import UsageError

if TYPE_CHECKING:
    from tidemark.context import Context as TidemarkContext
    from tidemark.model.retention.savepoint import SavepointRequest

STOP, RESUME = "stop", "resume"


class StopConf(PipelineConf):
    """The `conf` of a DAG run that stops a pipeline.

    Attributes:
        savepoint: first complete a last checkpoint, and pin it under this name; None = stop at once.
        drain: stop for good: a resume then needs `force`.
        note: a note for people.
    """

    savepoint: str | None = None
    drain: bool = Field(False, strict=True)
    note: str | None = None

    def request(self, user: str) -> "SavepointRequest | None":
        """Returns the savepoint to make.

        Args:
            user: its owner.

        Raises:
            UsageError: `drain` without a savepoint.
            NameRefusedError: the name is not valid.
        """
        from tidemark.coordinator.recovery.stop_and_resume import STOP
        from tidemark.model.retention.savepoint import SavepointRequest

        if self.savepoint:
            note, drained = self.note or "", self.drain
            return SavepointRequest(name=self.savepoint, owner=user, origin=STOP, note=note, drained=drained)
        if self.drain:
            raise UsageError("drain requires a savepoint", next="trigger it again with savepoint and drain.")
        return None


class ResumeConf(PipelineConf):
    """The `conf` of a DAG run that resumes a pipeline.

    Attributes:
        force: resume even if the pipeline was drained.
        note: a note for people.
    """

    force: bool = Field(False, strict=True)
    note: str | None = None


class PlanStopOperator(PlanVerbOperator[StopConf]):
    """Checks the form, and shows whether the pipeline is stopped, and a checkpoint in progress. Writes nothing."""

    form_model = StopConf

    def answer(self, opened: "TidemarkContext", conf: StopConf, context: Context) -> object:
        """Returns the state of the pipeline.

        Raises:
            UsageError, NameRefusedError, NotFoundError, ConflictError: the form is invalid, or the name is taken.
        """
        from tidemark.operations import stop

        return stop.plan_stop(opened, conf.pipeline, conf.request(caller(context)))


class CallStopOperator(CallVerbOperator[StopConf]):
    """Stops the pipeline, optionally after a last checkpoint that a savepoint pins; then its DAGs are paused.

    The last checkpoint is made in this task's process, with a Spark driver of its own unless there is a Connect server.
    """

    form_model = StopConf

    def answer(self, opened: "TidemarkContext", conf: StopConf, context: Context) -> object:
        """Returns the stop; a repeated task finds it.

        Raises:
            ConflictError: the name is taken, another process works on the pipeline, or it is stopped another way.
            TidemarkError: no last checkpoint was completed; the pipeline continues to run.
        """
        from tidemark.operations import stop

        why, request = conf.note or f"stopped by {caller(context)}", conf.request(caller(context))
        if request is None:
            done = stop.stop(opened, conf.pipeline, why)
        else:
            done = stop.stop_with_savepoint(opened, conf.pipeline, request, why)
        return stop.describe_stop(conf.pipeline, done)

    def finish(self, opened: "TidemarkContext", conf: StopConf, context: Context) -> None:
        """Asks the listener to pause the pipeline's DAGs."""
        super().finish(opened, conf, context)
        keep_wish(context, conf.pipeline, paused=True)


class PlanResumeOperator(PlanVerbOperator[ResumeConf]):
    """Shows whether the pipeline is stopped, and since which checkpoint. Writes nothing."""

    form_model = ResumeConf

    def answer(self, opened: "TidemarkContext", conf: ResumeConf, context: Context) -> object:
        """Returns the state of the pipeline.

        Raises:
            NotFoundError: no such pipeline.
        """
        from tidemark.operations import stop

        return stop.plan_stop(opened, conf.pipeline)


class CallResumeOperator(CallVerbOperator[ResumeConf]):
    """Allows the pipeline's DAGs to make checkpoints again; then they are unpaused."""

    form_model = ResumeConf

    def answer(self, opened: "TidemarkContext", conf: ResumeConf, context: Context) -> object:
        """Returns whether it was stopped; a repeated task finds that it is not.

        Raises:
            ConflictError: the pipeline was drained, and `force` is off.
        """
        from tidemark.operations import stop

        why = conf.note or f"resumed by {caller(context)}"
        done = stop.resume(opened, conf.pipeline, why, force=conf.force)
        return {"pipeline": conf.pipeline, "resumed": done is not None}

    def finish(self, opened: "TidemarkContext", conf: ResumeConf, context: Context) -> None:
        """Asks the listener to unpause the pipeline's DAGs."""
        super().finish(opened, conf, context)
        keep_wish(context, conf.pipeline, paused=False)


def keep_wish(context: Context, pipeline: str, *, paused: bool) -> None:
    """Stores on the task that the DAGs of a pipeline are to be paused or unpaused."""
    store = context.get("task_state_store")
    if store is not None:
        store.set(PAUSE_REQUEST, {"pipeline": pipeline, "paused": paused})


def stop_dag(pipelines: Sequence[Pipeline], **options: Unpack[FormOptions]) -> DAG:
    """Creates the DAG that stops pipelines on demand; call it at the module level of a DAG file.

    Args:
        pipelines: the pipelines that the form offers.
        **options: see `FormOptions`.

    Raises:
        DeclarationError: `pipelines` is empty, or an option is invalid.
    """
    return form_dag(_STOP_DAG, pipelines, options)


def resume_dag(pipelines: Sequence[Pipeline], **options: Unpack[FormOptions]) -> DAG:
    """Creates the DAG that resumes stopped pipelines on demand; call it at the module level of a DAG file.

    Args:
        pipelines: the pipelines that the form offers.
        **options: see `FormOptions`.

    Raises:
        DeclarationError: `pipelines` is empty, or an option is invalid.
    """
    return form_dag(_RESUME_DAG, pipelines, options)


_STOP_PAGE = """### A stop on demand
A stopped pipeline plans no checkpoint, from Airflow or by hand; you can still read it and create savepoints. With a
savepoint, a last checkpoint is completed and pinned first. Then the pipeline's checkpoint DAGs are paused, each once
its running DAG runs have ended.

REST: `POST /api/v2/dags/stop/dagRuns` with
`{"logical_date": null, "conf": {"pipeline": "...", "savepoint": "before-upgrade"}}`.

`tidemark stop PIPELINE` does the same without Airflow.
"""
_RESUME_PAGE = """### A resume on demand
Continues a stopped pipeline from its newest checkpoint, and unpauses its checkpoint DAGs.

REST: `POST /api/v2/dags/resume/dagRuns` with `{"logical_date": null, "conf": {"pipeline": "..."}}`.

`tidemark resume PIPELINE` does the same without Airflow.
"""


def _stop_fields(pipelines: list[str]) -> dict[str, Param]:
    pinned = "Complete a last checkpoint first, and pin it under this new name. Empty: stop at once."
    return {
        "pipeline": pipeline_field(pipelines),
        "savepoint": text_field("Savepoint", pinned),
        "drain": switch("Drain", "Stop for good and close all windows: a resume needs force. Requires a savepoint."),
        "note": text_field("Note", "A note for people."),
    }


def _resume_fields(pipelines: list[str]) -> dict[str, Param]:
    return {
        "pipeline": pipeline_field(pipelines),
        "force": switch("Force", "Resume even if the pipeline was drained."),
        "note": text_field("Note", "A note for people."),
    }


_STOP_DAG = FormKind(
    summary="Stop: no further checkpoint, with or without a savepoint",
    fields=_stop_fields,
    page=_STOP_PAGE,
    tasks={PLAN: PlanStopOperator, STOP: CallStopOperator},
)
_RESUME_DAG = FormKind(
    summary="Resume: continue a stopped pipeline",
    fields=_resume_fields,
    page=_RESUME_PAGE,
    tasks={PLAN: PlanResumeOperator, RESUME: CallResumeOperator},
)
