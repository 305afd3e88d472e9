"""What a person may ask of a backfill's DAG run: the trigger form, its model, and how differences are told."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from airflow.sdk import Context, Param
from pydantic import Field

from tidemark.airflow.checkpoint_tasks import PLAN
from tidemark.airflow.form_answers import (
    SELDOM,
    asked_for,
    number_field,
    pipeline_field,
    savepoint_field,
    text_field,
)
from tidemark.airflow.form_dag import BeginningConf, beginning_fields
from tidemark.model.core.names import parse_id

if TYPE_CHECKING:
    from tidemark.context import Context as TidemarkContext
    from tidemark.coordinator.recovery.backfill import Backfill, BackfillRequest
    from tidemark.readers.field_changes import FieldChange

FORK = "fork"
"""Key of the XCom that names the fork; what `plan` returns are the steps, because Airflow maps over that alone."""
_MODES = {"compare": "Compare only", "approve": "Promote after approval", "promote": "Promote"}


class BackfillConf(BeginningConf):
    """The `conf` of a DAG run; `savepoint` or `checkpoint` says where to begin.

    Attributes:
        savepoint: its name.
        checkpoint: `chk-17` or `17`.
        to: the checkpoint to end with; None = the live head.
        mode: `compare` shows the differences only, `promote` makes the fork live, `approve` asks before it does.
        max_records: offsets per partition of one step, which may then be several checkpoints; None = one each.
        name: of the fork; None = one that names beginning and code.
    """

    savepoint: str | None = None
    checkpoint: str | None = None
    to: str | None = None
    mode: Literal["compare", "promote", "approve"] = "compare"
    max_records: int | None = Field(None, ge=1, strict=True)
    name: str | None = None

    def request(self, run_id: str, fork: str = "") -> "BackfillRequest":
        """The request that the form makes.

        Args:
            run_id: names who asked, in plan and manifest.
            fork: as `plan` named it, so that code which changes meanwhile is noticed.

        Raises:
            UsageError: no beginning, or two; or an end, although the fork may become live.
        """
        from tidemark.coordinator.recovery.backfill import BackfillRequest
        from tidemark.coordinator.recovery.restore_request import RestoreRequest

        begins = RestoreRequest(
            savepoint=self.savepoint or None,
            checkpoint=parse_id(self.checkpoint) if self.checkpoint else None,
            allow_non_restored_state=self.allow_non_restored_state,
            force=self.force,
        )
        to = parse_id(self.to) if self.to else None
        return BackfillRequest(
            begins=begins,
            fork=fork or self.name or "",
            to=to,
            max_records=self.max_records,
            origin=run_id,
            promotes=self.mode != "compare",
        )


def asked(context: Context, pipelines: Sequence[str]) -> BackfillConf:
    """The form, checked: the same in every task of the DAG run.

    Raises:
        UsageError, NotFoundError: it does not fit.
    """
    return asked_for(BackfillConf, context, pipelines)


def found(opened: "TidemarkContext", context: Context, pipelines: Sequence[str]) -> "Backfill":
    """The backfill that this DAG run is at, by the fork that its `plan` named."""
    from tidemark.operations import backfill

    conf, fork = asked(context, pipelines), context["ti"].xcom_pull(task_ids=PLAN, key=FORK)
    return backfill.open_backfill(opened, conf.pipeline, conf.request(context["dag_run"].run_id, fork))


def summary(opened: "TidemarkContext", one: "Backfill") -> str:
    """The differences as Markdown."""
    from tidemark.operations import backfill

    differences = backfill.compare(opened, one)
    if differences is None:
        return f"Fork `{one.fork}` has repeated nothing: there is no difference."
    pair = differences.pair
    lines = [
        f"Fork `{one.fork}`: {pair.repeated.plan.name} compared with {pair.recorded.plan.name} of the live timeline.",
        "",
        "| operator | inserted | deleted | changed | equal | fields |",
        "|---|---|---|---|---|---|",
    ]
    for change in differences.changes:
        counts = (change.inserted, change.deleted, change.changed, change.equal)
        fields = [*map(_told, change.fields), *(f"+{n}" for n in change.added), *(f"-{n}" for n in change.removed)]
        lines.append(f"| {change.uid} | {' | '.join(map(str, counts))} | {'; '.join(fields)} |")
    if differences.not_compared:
        lines += ["", f"Not compared, for one side lacks them or keys differ: {', '.join(differences.not_compared)}."]
    return "\n".join(lines)


def _told(field: "FieldChange") -> str:
    by = "" if field.sum is None else f", in all {field.sum}, at most {field.largest}"
    return f"{field.name} {field.keys} keys{by}"


def form(pipelines: Sequence[str]) -> dict[str, Param]:
    """The fields of the trigger form."""
    where = "One of savepoint and checkpoint."
    return {
        "pipeline": pipeline_field(pipelines),
        "savepoint": savepoint_field(pipelines[0], "From savepoint", where),
        "checkpoint": text_field("From checkpoint", f"As in chk-17, of any timeline. {where}"),
        "mode": Param(
            "compare",
            type="string",
            enum=list(_MODES),
            values_display=_MODES,
            title="Mode",
            description="What happens when all is repeated and compared: the fork stays beside the live timeline, or "
            "becomes it.",
        ),
        "to": text_field(
            "To checkpoint", "As in chk-17; such a fork cannot be promoted. Empty: the live head, wherever it is."
        ),
        "max_records": number_field(
            "Records at most",
            "Repeats several checkpoints in one step, of at most this many offsets per partition. Empty: one in each.",
        ),
        "name": text_field("Fork", "Its name. Empty: one that says beginning and code.", section=SELDOM),
        **beginning_fields("Begin at"),
    }
