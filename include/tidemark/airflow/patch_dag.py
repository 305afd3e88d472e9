"""`patch_dag()`: a trigger form that makes a corrected savepoint, plan >> patch (H3)."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from airflow.sdk import DAG, Context, Param
from airflow.sdk.exceptions import AirflowSkipException
from pydantic import AwareDatetime, Field

from tidemark.airflow.checkpoint_tasks import PLAN, Ids, open_tidemark
from tidemark.airflow.form_answers import (
    SELDOM,
    PipelinesOperator,
    answering,
    asked_for,
    pipeline_field,
    switch,
    text_field,
)
from tidemark.airflow.form_dag import BeginningConf, beginning_fields, form_dag
from tidemark.declare.pipeline import Pipeline
from tidemark.model.core.savepoint_expiry import expiry_ms

if TYPE_CHECKING:
    from tidemark.operations.patch import Patched, PatchRequest

PATCH = "patch"


class PatchConf(BeginningConf):
    """The `conf` of a DAG run.

    Attributes:
        source: the savepoint to correct, or a checkpoint as in `chk-17`.
        name: of the corrected savepoint.
        set_tables: `UID=TABLE` of keys with their whole new state.
        delete_tables: `UID=TABLE` of keys to be gone.
        at: when keys that are set were accessed last; None = as late as the corrected checkpoint allows.
        timeline: of the fork; None = called like the savepoint.
        note, expires: of the savepoint.
        execute: do it; else only the plan is made and told.
    """

    source: str
    name: str
    set_tables: tuple[str, ...] = ()
    delete_tables: tuple[str, ...] = ()
    at: AwareDatetime | None = None
    timeline: str | None = None
    note: str | None = None
    expires: str | None = None
    execute: bool = Field(False, strict=True)

    def request(self, owner: str) -> "PatchRequest":
        """What is asked for.

        Raises:
            UsageError: a table or an expiry that cannot be read.
        """
        from tidemark.operations.patch import PatchRequest, source_of, tables_of

        return PatchRequest(
            pipeline=self.pipeline,
            source=source_of(self.source, force=self.force, allow_non_restored_state=self.allow_non_restored_state),
            name=self.name,
            values=tables_of(self.set_tables),
            deletes=tables_of(self.delete_tables),
            timeline=self.timeline or None,
            at=self.at,
            owner=owner,
            note=self.note or "",
            expires_at_ms=expiry_ms(self.expires, open_tidemark().clock.now_ms()) if self.expires else None,
        )


class PatchOperator(PipelinesOperator):
    """A task of the patch DAG."""

    def asked(self, context: Context) -> tuple[PatchConf, "PatchRequest"]:
        """The form, checked, and what it asks for: the same in every task of the DAG run.

        Raises:
            UsageError, NotFoundError: it does not fit.
        """
        conf = asked_for(PatchConf, context, self.pipelines)
        return conf, conf.request(context["dag_run"].triggering_user_name or "airflow")

    def tell(self, done: "Patched") -> Ids:
        """Logs what a patch comes to; returns its names."""
        for uid, state in done.states.items():
            self.log.info("%s: %s", uid, ", ".join(f"{name} {n}" for name, n in asdict(state).items()))
        found = {"savepoint": done.savepoint, "timeline": done.timeline, "from": done.source.plan.name}
        return found if done.checkpoint is None else found | {"checkpoint": done.checkpoint.plan.name}


class PlanPatchOperator(PatchOperator):
    """The dry run: reads every row of the tables, looks up its key, and tells what would change. Writes nothing."""

    ui_color = "#e8f0fe"

    def execute(self, context: Context) -> Ids:
        """Returns `{"pipeline", "savepoint", "timeline", "from"}`.

        Raises:
            AirflowFailException: the form or a table does not fit, or a name is taken; the message says what to type.
            TidemarkError: the store did not answer; the task is retried.
        """
        from tidemark.operations import patch

        with answering():
            conf, request = self.asked(context)
            planned = patch.plan_patch(open_tidemark(), request)
        return {"pipeline": conf.pipeline, **self.tell(planned)}


class ExecutePatchOperator(PatchOperator):
    """Makes the corrected savepoint on a fork. What is corrected stays as it is."""

    ui_color = "#fce8e6"

    def execute(self, context: Context) -> Ids:
        """Returns what `plan` returned, with the checkpoint; a repetition finds the one that it made.

        Raises:
            AirflowSkipException: the form asks for the plan only.
            AirflowFailException: a name was taken meanwhile.
            TidemarkError: the store did not answer; the task is retried.
        """
        from tidemark.operations import patch

        with answering():
            conf, request = self.asked(context)
            if not conf.execute:
                raise AirflowSkipException("a dry run: trigger it again with execute on")
            told = self.tell(patch.patch(open_tidemark(), request))
        for uid in dict.fromkeys([*request.values, *request.deletes]):
            ends = f"--from {told['from']} --to {told['checkpoint']}"
            self.log.info("look: tidemark state diff %s %s %s --values", conf.pipeline, uid, ends)
        self.log.info("next: tidemark restore %s --savepoint %s", conf.pipeline, told["savepoint"])
        return {"pipeline": conf.pipeline, **told}


def patch_dag(pipelines: Sequence[Pipeline], *, dag_id: str = "patch") -> DAG:
    """The DAG that makes corrected savepoints on demand; called at the module level of a DAG file.

    Args:
        pipelines: the form offers these.
        dag_id: as Airflow shows it.

    Raises:
        DeclarationError: no pipelines.
    """
    return form_dag(
        dag_id,
        "Patch: a corrected savepoint beside another one",
        pipelines=pipelines,
        form=_form,
        page=_PAGE,
        tasks={PLAN: PlanPatchOperator, PATCH: ExecutePatchOperator},
    )


_PAGE = """### A corrected savepoint
On a fork of a savepoint, keys are set and deleted; the fork's first checkpoint is pinned under a new name. What is
corrected stays as it is. Task `plan` reads the tables and tells what would change; task `patch` does it where `execute`
is on, and is skipped otherwise. Tables are paths that the worker can read.

REST: `POST /api/v2/dags/patch/dagRuns` with `{"logical_date": null, "conf": {"pipeline": "...", "source": "june",
"name": "june-right", "set_tables": ["aircraft=/data/right.parquet"], "execute": true}}`.

`tidemark state diff PIPELINE UID --from june --to june-right --values` shows what it did.
"""


def _form(pipelines: list[str]) -> dict[str, Param]:
    return {
        "pipeline": pipeline_field(pipelines),
        "source": Param("", type="string", title="From", description="A savepoint, or a checkpoint as in chk-17."),
        "name": Param("", type="string", title="Name", description="Of the corrected savepoint. A name is used once."),
        "set_tables": _tables("Set", "UID=TABLE, one per line: keys with their whole new state, Parquet or Delta."),
        "delete_tables": _tables("Delete", "UID=TABLE, one per line: keys to be gone."),
        "execute": switch("Execute", "Off: a dry run. Task plan tells what would change, and nothing does."),
        "note": text_field("Note", "What it is for."),
        "expires": text_field("Expires", "30d, 12h, or a time as in 2030-01-31T00:00Z. Empty: never.", section=SELDOM),
        "at": text_field(
            "At", "When keys that are set were accessed last. Empty: at From.", format="date-time", section=SELDOM
        ),
        "timeline": text_field("Timeline", "Name of the fork. Empty: that of the savepoint.", section=SELDOM),
        **beginning_fields("Correct"),
    }


def _tables(title: str, description: str) -> Param:
    items = {"type": "string"}
    return Param(None, type=["null", "array"], items=items, title=title, description=description)
