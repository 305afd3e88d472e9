"""`promote_dag()` and `close_dag()`: trigger forms that end a timeline for another one, or for good."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Unpack

from airflow.sdk import DAG, Context, Param
from pydantic import Field

from tidemark.airflow.form_answers import RARE, pipeline_field, switch
from tidemark.airflow.form_dags import FormKind, FormOptions, form_dag
from tidemark.airflow.task_names import PLAN
from tidemark.airflow.verb_operators import CallVerbOperator, DryRunConf, PlanVerbOperator, execute_field
from tidemark.declare.pipeline import Pipeline
from tidemark.errors import UsageError

if TYPE_CHECKING:
    from tidemark.context import Context as TidemarkContext

PROMOTE, CLOSE = "promote", "close"


class TimelineConf(DryRunConf):
    """The `conf` of a DAG run that names a timeline.

    Attributes:
        name: the timeline's name.
    """

    name: str

    @property
    def timeline(self) -> str:
        """The name.

        Raises:
            UsageError: it is empty.
        """
        if not self.name:
            raise UsageError("name is missing", next=f"give name; tidemark timeline list {self.pipeline} shows all.")
        return self.name


class CloseConf(TimelineConf):
    """The `conf` of a DAG run that closes a timeline."""


class PromoteConf(TimelineConf):
    """The `conf` of a DAG run that promotes a fork.

    Attributes:
        discard, send: as for `tidemark promote`.
    """

    discard: bool = Field(False, strict=True)
    send: bool = Field(False, strict=True)


class PlanPromoteOperator(PlanVerbOperator[PromoteConf]):
    """Shows which timeline ends, and which of its checkpoints the fork replaces or lacks. Writes nothing."""

    form_model = PromoteConf

    def answer(self, opened: "TidemarkContext", conf: PromoteConf, context: Context) -> object:
        """Returns the plan.

        Raises:
            NotFoundError, ConflictError: no such timeline; it is live or closed, or lacks records of the live one.
        """
        from tidemark.coordinator.records.states import PromotionBlocked
        from tidemark.operations import timelines

        found = timelines.plan_promote(opened, conf.pipeline, conf.timeline)
        if found.left and not conf.discard:
            blocked = PromotionBlocked(timeline=conf.timeline, lacking=found.left, overtaken=False)
            raise timelines.behind(conf.pipeline, blocked)
        return timelines.describe_promote(conf.timeline, found)


class CallPromoteOperator(CallVerbOperator[PromoteConf]):
    """Makes the fork the live timeline. The previous live timeline ends and stays readable."""

    form_model = PromoteConf

    def answer(self, opened: "TidemarkContext", conf: PromoteConf, context: Context) -> object:
        """Returns the promote; a repeated task finds that the fork is live.

        Raises:
            NotFoundError, ConflictError: see `timelines.promote`.
        """
        from tidemark.operations import timelines

        done = timelines.promote(opened, conf.pipeline, conf.timeline, discard=conf.discard, send=conf.send)
        return timelines.describe_promote(conf.timeline, done)


class PlanCloseOperator(PlanVerbOperator[CloseConf]):
    """Shows which checkpoints the timeline has, and what keeps some of them nevertheless. Writes nothing."""

    form_model = CloseConf

    def answer(self, opened: "TidemarkContext", conf: CloseConf, context: Context) -> object:
        """Returns the plan.

        Raises:
            NotFoundError, ConflictError: no such timeline; it is live, or has a checkpoint in progress.
        """
        from tidemark.operations import timelines

        return timelines.describe_close(timelines.plan_close(opened, conf.pipeline, conf.timeline))


class CallCloseOperator(CallVerbOperator[CloseConf]):
    """Ends the timeline, so that retention can release what only it keeps. Deletes no file itself."""

    form_model = CloseConf

    def answer(self, opened: "TidemarkContext", conf: CloseConf, context: Context) -> object:
        """Returns the end; a repeated task finds it.

        Raises:
            NotFoundError, ConflictError: see `timelines.close`.
        """
        from tidemark.operations import timelines

        return timelines.describe_close(timelines.close(opened, conf.pipeline, conf.timeline))


def promote_dag(pipelines: Sequence[Pipeline], **options: Unpack[FormOptions]) -> DAG:
    """Creates the DAG that promotes forks on demand; call it at the module level of a DAG file.

    Args:
        pipelines: the pipelines that the form offers.
        **options: see `FormOptions`.

    Raises:
        DeclarationError: `pipelines` is empty, or an option is invalid.
    """
    return form_dag(_PROMOTE_DAG, pipelines, options)


def close_dag(pipelines: Sequence[Pipeline], **options: Unpack[FormOptions]) -> DAG:
    """Creates the DAG that closes timelines on demand; call it at the module level of a DAG file.

    Args:
        pipelines: the pipelines that the form offers.
        **options: see `FormOptions`.

    Raises:
        DeclarationError: `pipelines` is empty, or an option is invalid.
    """
    return form_dag(_CLOSE_DAG, pipelines, options)


_PROMOTE_PAGE = """### A promote on demand
Makes a fork the live timeline. The fork must have applied every record that the live timeline has. Task `plan` shows
the effect; task `promote` carries it out if `execute` is on, and is skipped otherwise.

REST: `POST /api/v2/dags/promote/dagRuns` with
`{"logical_date": null, "conf": {"pipeline": "...", "name": "bugfix", "execute": true}}`.

`tidemark promote PIPELINE NAME` does the same without Airflow.
"""
_CLOSE_PAGE = """### The end of a timeline on demand
Ends a fork, or the timeline of a restore that was interrupted, so that retention can release what only it keeps. Task
`plan` shows the effect; task `close` carries it out if `execute` is on, and is skipped otherwise.

REST: `POST /api/v2/dags/close/dagRuns` with
`{"logical_date": null, "conf": {"pipeline": "...", "name": "bugfix", "execute": true}}`.

`tidemark timeline close PIPELINE NAME` does the same without Airflow.
"""


def _promote_fields(pipelines: list[str]) -> dict[str, Param]:
    lacking = "Promote even if the fork lacks records that the live timeline has applied."
    unsent = "Send records in the fork's outboxes that the live timeline has not sent."
    return {
        "pipeline": pipeline_field(pipelines),
        "name": Param("", type="string", title="Fork", description="The name of the fork, for example bugfix."),
        "execute": execute_field(),
        "discard": switch("Discard", lacking, section=RARE),
        "send": switch("Send", unsent, section=RARE),
    }


def _close_fields(pipelines: list[str]) -> dict[str, Param]:
    named = "The name of a timeline that is not live, for example bugfix."
    return {
        "pipeline": pipeline_field(pipelines),
        "name": Param("", type="string", title="Timeline", description=named),
        "execute": execute_field(),
    }


_PROMOTE_DAG = FormKind(
    summary="Promote: make a fork the live timeline",
    fields=_promote_fields,
    page=_PROMOTE_PAGE,
    tasks={PLAN: PlanPromoteOperator, PROMOTE: CallPromoteOperator},
)
_CLOSE_DAG = FormKind(
    summary="Close: end a timeline that is not live",
    fields=_close_fields,
    page=_CLOSE_PAGE,
    tasks={PLAN: PlanCloseOperator, CLOSE: CallCloseOperator},
)
