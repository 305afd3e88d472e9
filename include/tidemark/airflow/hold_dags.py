"""`hold_dag()`: a trigger form that puts a legal hold on a savepoint, or releases it; its tasks are plan >> hold."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Unpack

from airflow.sdk import DAG, Context, Param
from pydantic import Field

from tidemark.airflow.form_answers import PipelineConf, pipeline_field, savepoint_field, switch, text_field
from tidemark.airflow.form_dags import FormKind, FormOptions, form_dag
from tidemark.airflow.task_names import PLAN
from tidemark.airflow.verb_operators import CallVerbOperator, PlanVerbOperator, caller
from tidemark.declare.pipeline import Pipeline
from tidemark.errors import UsageError

if TYPE_CHECKING:
    from tidemark.context import Context as TidemarkContext

HOLD = "hold"


class HoldConf(PipelineConf):
    """The `conf` of a DAG run.

    Attributes:
        savepoint: the savepoint's name.
        why: the case, or who asked for the hold; a release needs none.
        owner: who is responsible; None = the user who triggers the DAG.
        release: end the hold instead.
    """

    savepoint: str | None = None
    why: str | None = None
    owner: str | None = None
    release: bool = Field(False, strict=True)

    @property
    def name(self) -> str:
        """The savepoint's name.

        Raises:
            UsageError: it is empty, or a hold has no reason.
        """
        if not self.savepoint:
            raise UsageError("savepoint is missing", next=f"tidemark savepoint list {self.pipeline}    (shows all).")
        if not self.release and not self.why:
            raise UsageError("why is missing", next="name the case, or who asked for the hold.")
        return self.savepoint


class PlanHoldOperator(PlanVerbOperator[HoldConf]):
    """Checks the form, and shows what keeps the savepoint now. Writes nothing."""

    form_model = HoldConf

    def answer(self, opened: "TidemarkContext", conf: HoldConf, context: Context) -> object:
        """Returns what keeps the savepoint now.

        Raises:
            UsageError, NotFoundError: the form is incomplete, or there is no such savepoint.
        """
        return _describe(opened, conf)


class CallHoldOperator(CallVerbOperator[HoldConf]):
    """Puts the hold, which keeps the savepoint from expiring and from being disposed of, or releases it."""

    form_model = HoldConf

    def answer(self, opened: "TidemarkContext", conf: HoldConf, context: Context) -> object:
        """Returns what keeps the savepoint afterwards; a repeated task finds the hold or its end.

        Raises:
            NotFoundError, ConflictError: see `Holding`.
        """
        from tidemark.operations import retention

        holds = retention.open_holds(opened, conf.pipeline)
        if not conf.release:
            holds.hold(conf.name, why=conf.why or "", owner=conf.owner or caller(context))
        elif context["ti"].try_number == 1 or any("hold" in reason for reason in _needed_by(opened, conf)):
            holds.release(conf.name)
        return _describe(opened, conf)


def _describe(opened: "TidemarkContext", form: HoldConf) -> dict[str, object]:
    from tidemark.operations import savepoints

    found = savepoints.open_savepoints(opened, form.pipeline).get(form.name)
    return {"savepoint": form.name, "checkpoint": found.checkpoint_name, "needed_by": _needed_by(opened, form)}


def _needed_by(opened: "TidemarkContext", form: HoldConf) -> list[str]:
    from tidemark.operations import savepoints

    return list(savepoints.open_savepoints(opened, form.pipeline).needed_by(form.name))


def hold_dag(pipelines: Sequence[Pipeline], **options: Unpack[FormOptions]) -> DAG:
    """Creates the DAG that puts and releases legal holds on demand; call it at the module level of a DAG file.

    Args:
        pipelines: the pipelines that the form offers.
        **options: see `FormOptions`.

    Raises:
        DeclarationError: `pipelines` is empty, or an option is invalid.
    """
    return form_dag(_HOLD_DAG, pipelines, options)


_PAGE = """### A legal hold on demand
A savepoint under a hold does not expire and cannot be disposed of, until the hold is released. Task `plan` shows what
keeps the savepoint now; task `hold` puts the hold, or releases it.

REST: `POST /api/v2/dags/hold/dagRuns` with
`{"logical_date": null, "conf": {"pipeline": "...", "savepoint": "end-of-june", "why": "case 4711"}}`.

`tidemark savepoint hold PIPELINE NAME` and `tidemark savepoint release PIPELINE NAME` do the same without Airflow.
"""


def _fields(pipelines: list[str]) -> dict[str, Param]:
    return {
        "pipeline": pipeline_field(pipelines),
        "savepoint": savepoint_field(pipelines[0], "Savepoint", "It must exist."),
        "why": text_field("Why", "The case, or who asked for the hold. A release needs none."),
        "owner": text_field("Owner", "Who is responsible. Empty: the user who triggers the DAG."),
        "release": switch("Release", "End the hold instead. The savepoint stays."),
    }


_HOLD_DAG = FormKind(
    summary="Hold: keep a savepoint for a legal case",
    fields=_fields,
    page=_PAGE,
    tasks={PLAN: PlanHoldOperator, HOLD: CallHoldOperator},
)
