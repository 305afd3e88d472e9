"""`redrive_dag()`: a trigger form that asks for a redrive of dead letters; its tasks are plan >> redrive."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Unpack

from airflow.sdk import DAG, Context, Param
from pydantic import Field

from tidemark.airflow.checkpoint_tasks import Ids
from tidemark.airflow.form_answers import number_field, pipeline_field, switch, text_field
from tidemark.airflow.form_dags import FormKind, FormOptions, form_dag
from tidemark.airflow.task_names import PLAN
from tidemark.airflow.verb_operators import CallVerbOperator, DryRunConf, PlanVerbOperator, caller, execute_field
from tidemark.declare.pipeline import Pipeline
from tidemark.errors import UsageError

if TYPE_CHECKING:
    from tidemark.context import Context as TidemarkContext
    from tidemark.operations.dead_letters.redriving import RedriveRequest

REDRIVE = "redrive"


class RedriveConf(DryRunConf):
    """The `conf` of a DAG run.

    Attributes:
        uid: the operator's uid.
        reason, checkpoint, partition, limit, out_of_order, note: as for `tidemark dead-letters redrive`.
        owner: who is responsible; None = the user who triggers the DAG.
    """

    uid: str
    reason: str | None = None
    checkpoint: str | None = None
    partition: str | None = None
    limit: int | None = Field(None, ge=1, strict=True)
    out_of_order: bool = Field(False, strict=True)
    note: str | None = None
    owner: str | None = None

    def request(self, origin: str) -> "RedriveRequest":
        """Returns the request.

        Args:
            origin: the DAG run.

        Raises:
            UsageError: the operator is missing, or the checkpoint is no id.
        """
        from tidemark.model.core.names import parse_id
        from tidemark.operations.dead_letters.redriving import LetterFilter, RedriveRequest

        if not self.uid:
            raise UsageError("uid is missing", next=f"tidemark dead-letters list {self.pipeline}    (lists operators).")
        letters = LetterFilter(
            reason=self.reason or "",
            checkpoint=parse_id(self.checkpoint) if self.checkpoint else None,
            partition=self.partition or "",
            limit=self.limit,
        )
        return RedriveRequest(
            uid=self.uid, letters=letters, out_of_order=self.out_of_order, note=self.note or "", origin=origin
        )


class PlanRedriveOperator(PlanVerbOperator[RedriveConf]):
    """Shows how many letters the current code would apply, and why it would refuse the others. Writes nothing."""

    form_model = RedriveConf

    def answer(self, opened: "TidemarkContext", conf: RedriveConf, context: Context) -> object:
        """Returns the effect; for a DAG run that has asked already, the request.

        Raises:
            UsageError, NotFoundError: see `redriving.plan_redrive`.
        """
        from tidemark.operations.dead_letters import redriving

        found = redriving.find_asked(opened, conf.pipeline, _origin(context))
        return found or redriving.plan_redrive(opened, conf.pipeline, conf.request(_origin(context)))

    def result(self, answer: object) -> Ids:
        """How many letters there are, and the verdict of the current code on them."""
        return _counts(answer)


class CallRedriveOperator(CallVerbOperator[RedriveConf]):
    """Asks the next checkpoint for the redrive. Needs no Spark."""

    form_model = RedriveConf

    def answer(self, opened: "TidemarkContext", conf: RedriveConf, context: Context) -> object:
        """Returns the effect; a repeated task finds the request of an earlier try.

        Raises:
            UsageError, NotFoundError, ConflictError: see `redriving.redrive`.
        """
        from tidemark.operations.dead_letters import redriving

        found = redriving.find_asked(opened, conf.pipeline, _origin(context))
        owner = conf.owner or caller(context)
        return found or redriving.redrive(opened, conf.pipeline, conf.request(_origin(context)), owner)

    def result(self, answer: object) -> Ids:
        """The number of the request, with the counts of its letters."""
        return _counts(answer)


def _counts(answer: object) -> Ids:
    """The counts of a preview, or the request that the DAG run has made already."""
    from tidemark.answers.dead_letter_facts import RedrivePreview, RedriveStatus

    if isinstance(answer, RedriveStatus):
        return {"letters": answer.letters, "request": answer.number}
    assert isinstance(answer, RedrivePreview)  # noqa: S101  (for the type checker)
    counted = {"letters": answer.letters, "applied": answer.applied, "refused": dict(answer.refused)}
    return counted if answer.request is None else {**counted, "request": answer.request}


def _origin(context: Context) -> str:
    run = context["dag_run"]
    return f"{run.dag_id}/{run.run_id}"


def redrive_dag(pipelines: Sequence[Pipeline], **options: Unpack[FormOptions]) -> DAG:
    """Creates the DAG that redrives dead letters on demand; call it at the module level of a DAG file.

    Args:
        pipelines: the pipelines that the form offers.
        **options: see `FormOptions`.

    Raises:
        DeclarationError: `pipelines` is empty, or an option is invalid.
    """
    return form_dag(_REDRIVE_DAG, pipelines, options)


_PAGE = """### A redrive on demand
Gives an operator its dead letters again, decoded by the current code, as part of the next checkpoint. Task `plan` shows
how many the current code would apply; task `redrive` asks for it if `execute` is on, and is skipped otherwise.

REST: `POST /api/v2/dags/redrive/dagRuns` with
`{"logical_date": null, "conf": {"pipeline": "...", "uid": "aircraft", "reason": "missing_field", "execute": true}}`.

`tidemark dead-letters redrive PIPELINE UID` does the same without Airflow.
"""


def _fields(pipelines: list[str]) -> dict[str, Param]:
    late = "Accept that the result depends on when records arrive."
    return {
        "pipeline": pipeline_field(pipelines),
        "uid": Param("", type="string", title="Operator", description="The operator's uid, for example aircraft."),
        "reason": text_field("Reason", "Only letters of this reason, for example missing_field. Empty: of any reason."),
        "execute": execute_field(),
        "checkpoint": text_field("Checkpoint", "Only letters that this checkpoint refused, for example chk-3."),
        "partition": text_field("Partition", "Only letters of this partition, for example flights-0."),
        "limit": number_field("Limit", "At most this many letters, the oldest ones."),
        "out_of_order": switch("Out of order", late),
        "note": text_field("Note", "A note for people."),
        "owner": text_field("Owner", "Who is responsible. Empty: the user who triggers the DAG."),
    }


_REDRIVE_DAG = FormKind(
    summary="Redrive: give an operator its dead letters again",
    fields=_fields,
    page=_PAGE,
    tasks={PLAN: PlanRedriveOperator, REDRIVE: CallRedriveOperator},
)
