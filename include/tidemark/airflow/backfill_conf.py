"""What a person may ask of a backfill's DAG run: the trigger form, its model, and how differences are told."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from airflow.sdk import Context, Param
from pydantic import BaseModel, ConfigDict, Field

from tidemark.airflow.answering import parsed
from tidemark.airflow.operators import PLAN
from tidemark.errors import NotFoundError
from tidemark.model.names import parse_id

if TYPE_CHECKING:
    from tidemark.adapters.state_change import FieldChange
    from tidemark.coordinator.backfill import Backfill
    from tidemark.wiring import Runtime
    from tidemark.wiring.backfills import BackfillTerms

FORK = "fork"
"""Key of the XCom that names the fork; what `plan` returns are the steps, because Airflow maps over that alone."""
_TEXT = ["null", "string"]


class BackfillConf(BaseModel):
    """The `conf` of a DAG run; `savepoint` or `checkpoint` says where to begin.

    Attributes:
        pipeline: one of those that the DAG names.
        savepoint: its name.
        checkpoint: `chk-17` or `17`.
        to: the checkpoint to end with; None = the live head.
        mode: `compare` shows the differences only, `promote` makes the fork live, `approve` asks before it does.
        max_records: offsets per partition of one step, which may then be several checkpoints; None = one each.
        name: of the fork; None = one that names beginning and code.
        allow_non_restored_state, force: as `tidemark backfill` takes them.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    pipeline: str
    savepoint: str | None = None
    checkpoint: str | None = None
    to: str | None = None
    mode: Literal["compare", "promote", "approve"] = "compare"
    max_records: int | None = Field(None, ge=1, strict=True)
    name: str | None = None
    allow_non_restored_state: bool = Field(False, strict=True)
    force: bool = Field(False, strict=True)

    def terms(self, run_id: str, fork: str = "") -> "BackfillTerms":
        """What is asked for.

        Args:
            run_id: names who asked, in plan and manifest.
            fork: as `plan` named it, so that code which changes meanwhile is noticed.

        Raises:
            UsageError: no beginning, or two.
        """
        from tidemark.coordinator.restore_request import RestoreRequest
        from tidemark.wiring.backfills import BackfillTerms

        begins = RestoreRequest(
            savepoint=self.savepoint or None,
            checkpoint=parse_id(self.checkpoint) if self.checkpoint else None,
            allow_non_restored_state=self.allow_non_restored_state,
            force=self.force,
        )
        to = parse_id(self.to) if self.to else None
        return BackfillTerms(
            begins=begins, fork=fork or self.name or "", to=to, max_records=self.max_records, origin=run_id
        )


def asked(context: Context, pipelines: Sequence[str]) -> BackfillConf:
    """The form, checked: the same in every task of the DAG run.

    Raises:
        UsageError, NotFoundError: it does not fit.
    """
    run = context["dag_run"]
    conf = parsed(BackfillConf, {**context["params"], **(run.conf or {})})
    if conf.pipeline not in pipelines:
        raise NotFoundError(f"this DAG has no pipeline {conf.pipeline!r}", next=f"name one of: {', '.join(pipelines)}.")
    return conf


def found(opened: "Runtime", context: Context, pipelines: Sequence[str]) -> "Backfill":
    """The backfill that this DAG run is at, by the fork that its `plan` named."""
    conf, fork = asked(context, pipelines), context["ti"].xcom_pull(task_ids=PLAN, key=FORK)
    return opened.backfill(conf.pipeline, conf.terms(context["dag_run"].run_id, fork))


def summary(opened: "Runtime", one: "Backfill") -> str:
    """The differences as Markdown."""
    differences = opened.differences(one)
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
        lines.append(f"| {change.uid} | {' | '.join(map(str, counts))} | {'; '.join(map(_told, change.fields))} |")
    return "\n".join(lines)


def _told(field: "FieldChange") -> str:
    by = "" if field.sum is None else f", in all {field.sum}, at most {field.largest}"
    return f"{field.name} {field.keys} keys{by}"


def form(pipelines: Sequence[str]) -> dict[str, Param]:
    """The fields of the trigger form."""
    where = "One of savepoint and checkpoint."
    gone = "Operators that are gone from the pipeline: leave their state behind."
    return {
        "pipeline": Param(pipelines[0], type="string", enum=list(pipelines), title="Pipeline"),
        "savepoint": Param(None, type=_TEXT, title="From savepoint", description=where),
        "checkpoint": Param(None, type=_TEXT, title="From checkpoint", description=f"As in chk-17. {where}"),
        "to": Param(
            None, type=_TEXT, title="To checkpoint", description="Empty: the live head, wherever it is by then."
        ),
        "mode": Param(
            "compare",
            type="string",
            enum=["compare", "promote", "approve"],
            values_display={
                "compare": "compare only",
                "promote": "promote",
                "approve": "promote after approval",
            },
            title="Mode",
            description="What happens when all is repeated and compared.",
        ),
        "max_records": Param(
            None,
            type=["null", "integer"],
            minimum=1,
            title="Records at most",
            description="Repeats several checkpoints at once, of at most this many offsets per partition.",
        ),
        "name": Param(None, type=_TEXT, title="Fork", description="Empty: a name that says beginning and code."),
        "allow_non_restored_state": Param(False, type="boolean", title="Allow non-restored state", description=gone),
        "force": Param(
            False,
            type="boolean",
            title="Force",
            description="Begin at a savepoint that the pipeline was drained with.",
        ),
    }
