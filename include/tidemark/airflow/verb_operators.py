"""The two tasks of a form that calls one verb: one shows its effect and writes nothing, the next calls it."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Generic, TypeVar

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowSkipException
from pydantic import Field

from tidemark.airflow.airflow_metrics import observe
from tidemark.airflow.checkpoint_tasks import Ids, open_tidemark
from tidemark.airflow.form_answers import PipelineConf, PipelinesOperator, fail_on_refusal, read_conf, switch

if TYPE_CHECKING:
    from airflow.sdk import Param

    from tidemark.context import Context as TidemarkContext

C = TypeVar("C", bound=PipelineConf)
KEPT = 2_000
"""Characters of an answer's field in the log."""


class DryRunConf(PipelineConf):
    """The `conf` of a DAG run whose verb could lose something.

    Attributes:
        execute: call the verb; otherwise only show its effect.
    """

    execute: bool = Field(False, strict=True)


def execute_field() -> "Param":
    """Returns the form's field for `DryRunConf`."""
    return switch("Execute", "Off: a dry run. Task plan shows the effect, and nothing is written.")


class VerbOperator(PipelinesOperator, Generic[C]):
    """A task of a form; subclasses say which form and what to do with it."""

    form_model: type[C]

    @abstractmethod
    def answer(self, opened: "TidemarkContext", conf: C, context: Context) -> object:
        """Returns the answer to show.

        Raises:
            TidemarkError: the verb refuses.
        """

    def execute(self, context: Context) -> Ids:
        """Shows the answer, and returns the pipeline, with ids and counts of the answer.

        Raises:
            AirflowSkipException: the form asks for a dry run only.
            AirflowFailException: the form is invalid, or the verb refuses; the message says what to do next.
            TidemarkError: the store or Kafka did not answer; the task is retried.
        """
        from tidemark.model.checkpoint.codec import body_of

        with fail_on_refusal():
            conf = read_conf(self.form_model, context, self.pipelines)
            self.refuse_dry_run(conf)
            opened = open_tidemark()
            answer = self.answer(opened, conf, context)
        for name, value in (answer if isinstance(answer, Mapping) else body_of(answer)).items():
            self.log.info("%s: %s", name, str(value)[:KEPT])
        self.finish(opened, conf, context)
        return {"pipeline": conf.pipeline, **self.result(answer)}

    def result(self, answer: object) -> Ids:  # noqa: ARG002
        """What the task returns in addition to the pipeline: ids and counts of the answer, for the pages."""
        return {}

    def refuse_dry_run(self, conf: C) -> None:
        """Skips a task that writes, if the form asks for the plan only."""

    def finish(self, opened: "TidemarkContext", conf: C, context: Context) -> None:
        """Called once the answer is shown."""


class PlanVerbOperator(VerbOperator[C]):
    """Checks the form and shows the effect. Writes nothing."""

    ui_color = "#e8f0fe"


class CallVerbOperator(VerbOperator[C]):
    """Calls the verb. A repeated task finds what an earlier try has done."""

    ui_color = "#fce8e6"

    def refuse_dry_run(self, conf: C) -> None:
        """Skips the task if the form asks for the plan only."""
        if isinstance(conf, DryRunConf) and not conf.execute:
            raise AirflowSkipException("a dry run: trigger it again with execute on")

    def finish(self, opened: "TidemarkContext", conf: C, context: Context) -> None:
        """Reports the pipeline's metrics."""
        observe(opened, conf.pipeline)


def caller(context: Context) -> str:
    """Returns who has triggered the DAG run."""
    return context["dag_run"].triggering_user_name or "airflow"
