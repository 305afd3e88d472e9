"""The trigger form of a backfill's DAG run, its model, and the report of differences."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from airflow.sdk import Context, Param
from pydantic import Field

from tidemark.airflow.form_answers import (
    RARE,
    number_field,
    pipeline_field,
    read_conf,
    savepoint_field,
    text_field,
)
from tidemark.airflow.form_dags import BeginningConf, beginning_fields
from tidemark.airflow.task_names import PLAN
from tidemark.model.core.names import parse_id

if TYPE_CHECKING:
    from tidemark.context import Context as TidemarkContext
    from tidemark.coordinator.recovery.backfill import Backfill, BackfillRequest
    from tidemark.readers.field_changes import FieldChange

FORK = "fork"
"""Key of the XCom that names the fork. `plan` returns the steps, because Airflow maps over return values only."""
_MODES = {"compare": "Compare only", "approve": "Promote after approval", "promote": "Promote"}


class BackfillConf(BeginningConf):
    """The `conf` of a DAG run; `savepoint` or `checkpoint` is the starting point.

    Attributes:
        savepoint: the savepoint's name.
        checkpoint: `chk-17` or `17`.
        to: the checkpoint to end with; None = the newest one of the live timeline.
        mode: `compare` only shows the differences, `promote` makes the fork live, `approve` asks before it does.
        max_records: merges checkpoints into steps of at most this many offsets; None = one step each.
        name: the fork's name; None = a name made of the starting checkpoint and the code.
    """

    savepoint: str | None = None
    checkpoint: str | None = None
    to: str | None = None
    mode: Literal["compare", "promote", "approve"] = "compare"
    max_records: int | None = Field(None, ge=1, strict=True)
    name: str | None = None

    def request(self, run_id: str, fork: str = "") -> "BackfillRequest":
        """Returns the backfill that the form requests.

        Args:
            run_id: id of the DAG run, recorded in plan and manifest.
            fork: the fork's name as `plan` chose it; if the code changes meanwhile, this shows it.

        Raises:
            UsageError: no starting point or two of them, or `to` with a mode that may promote the fork.
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


def read_form(context: Context, pipelines: Sequence[str]) -> BackfillConf:
    """Returns the validated form, which is the same in every task of the DAG run.

    Raises:
        UsageError, NotFoundError: the form is invalid.
    """
    return read_conf(BackfillConf, context, pipelines)


def open_run_backfill(opened: "TidemarkContext", context: Context, pipelines: Sequence[str]) -> "Backfill":
    """Returns the backfill of this DAG run, found by the fork that its `plan` named."""
    from tidemark.operations import backfill

    conf, fork = read_form(context, pipelines), context["ti"].xcom_pull(task_ids=PLAN, key=FORK)
    return backfill.open_backfill(opened, conf.pipeline, conf.request(context["dag_run"].run_id, fork))


def summary(opened: "TidemarkContext", one: "Backfill") -> str:
    """Formats the differences as Markdown."""
    from tidemark.operations import backfill

    differences = backfill.compare(opened, one)
    if differences is None:
        return f"Fork `{one.fork}` has repeated no checkpoint, so there is nothing to compare."
    pair = differences.pair
    lines = [
        f"Fork `{one.fork}`: {pair.repeated.plan.name} compared with {pair.recorded.plan.name} of the live timeline.",
        "",
        "| operator | inserted | deleted | changed | equal | fields |",
        "|---|---|---|---|---|---|",
    ]
    for change in differences.changes:
        counts = (change.inserted, change.deleted, change.changed, change.equal)
        fields = [
            *map(_field_text, change.fields),
            *(f"+{n}" for n in change.added),
            *(f"-{n}" for n in change.removed),
        ]
        lines.append(f"| {change.uid} | {' | '.join(map(str, counts))} | {'; '.join(fields)} |")
    if differences.sinks:
        lines += ["", "| sink | inserted | deleted | changed | equal |", "|---|---|---|---|---|"]
    for sink in differences.sinks:
        counts = (sink.inserted, sink.deleted, sink.changed, sink.equal)
        lines.append(f"| {sink.sink} of {sink.uid} | {' | '.join(map(str, counts))} |")
    if differences.not_compared:
        skipped = ", ".join(differences.not_compared)
        lines += ["", f"Not compared, because one side lacks them or their keys differ: {skipped}."]
    return "\n".join(lines)


def _field_text(field: "FieldChange") -> str:
    by = "" if field.sum is None else f", total {field.sum}, largest {field.largest}"
    return f"{field.name} {field.keys} keys{by}"


def form(pipelines: Sequence[str]) -> dict[str, Param]:
    """Returns the fields of the trigger form."""
    where = "Give either a savepoint or a checkpoint."
    return {
        "pipeline": pipeline_field(pipelines),
        "savepoint": savepoint_field(pipelines[0], "From savepoint", where),
        "checkpoint": text_field("From checkpoint", f"For example chk-17, of any timeline. {where}"),
        "mode": Param(
            "compare",
            type="string",
            enum=list(_MODES),
            values_display=_MODES,
            title="Mode",
            description="What to do after the comparison: keep the fork next to the live timeline, or make it the live "
            "one.",
        ),
        "to": text_field(
            "To checkpoint",
            "For example chk-17; such a fork cannot be promoted. Empty: the newest checkpoint of the live timeline.",
        ),
        "max_records": number_field(
            "Records at most",
            "Merges checkpoints into steps of at most this many offsets. Empty: one step per checkpoint.",
        ),
        "name": text_field("Fork", "The fork's name. Empty: named after the start and the code.", section=RARE),
        **beginning_fields("Begin at"),
    }
