"""`patch_dag()`: a trigger form that creates a corrected savepoint; its tasks are plan >> patch."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Unpack

from airflow.sdk import DAG, Context, Param
from airflow.sdk.exceptions import AirflowSkipException

from tidemark.airflow.checkpoint_tasks import Ids, open_tidemark
from tidemark.airflow.form_answers import (
    RARE,
    fail_on_refusal,
    pipeline_field,
    read_conf,
    switch,
    text_field,
)
from tidemark.airflow.form_dags import FormKind, FormOptions, beginning_fields, form_dag
from tidemark.airflow.state_forms import StatesConf, StatesOperator, savepoint_fields, source_field
from tidemark.airflow.task_names import PLAN
from tidemark.declare.pipeline import Pipeline

if TYPE_CHECKING:
    from tidemark.operations.savepoint_states.patch import Patched, PatchRequest

PATCH = "patch"


class PatchConf(StatesConf):
    """The `conf` of a DAG run; see also `StatesConf`.

    Attributes:
        name: the corrected savepoint's name.
        set_tables: `UID=TABLE` of keys and their complete new state.
        delete_tables: `UID=TABLE` of keys to delete.
        timeline: the fork's name; None = the savepoint's name.
    """

    name: str
    set_tables: tuple[str, ...] = ()
    delete_tables: tuple[str, ...] = ()
    timeline: str | None = None

    def request(self, owner: str) -> "PatchRequest":
        """Returns the request.

        Raises:
            UsageError: a table or the expiry cannot be parsed.
        """
        from tidemark.operations.savepoint_states.patch import PatchRequest, tables_of

        return PatchRequest(
            name=self.name,
            values=tables_of(self.set_tables),
            deletes=tables_of(self.delete_tables),
            timeline=self.timeline or None,
            **self.shared_arguments(owner),
        )


class PatchOperator(StatesOperator):
    """A task of the patch DAG."""

    def read_form(self, context: Context) -> tuple[PatchConf, "PatchRequest"]:
        """Returns the validated form and its request, which are the same in every task of the DAG run.

        Raises:
            UsageError, NotFoundError: the form is invalid.
        """
        conf = read_conf(PatchConf, context, self.pipelines)
        return conf, conf.request(context["dag_run"].triggering_user_name or "airflow")

    def report(self, done: "Patched") -> Ids:
        """Logs the changes of a patch, and returns its names and counts."""
        return self.describe(done, {uid: asdict(state) for uid, state in done.states.items()})


class PlanPatchOperator(PatchOperator):
    """The dry run: reads every row of the tables, looks up its key, and lists the changes. Writes nothing."""

    ui_color = "#e8f0fe"

    def execute(self, context: Context) -> Ids:
        """Returns `{"pipeline", "savepoint", "timeline", "from", "states"}`.

        Raises:
            AirflowFailException: the form or a table is invalid, or a name is taken; the message says what to do next.
            TidemarkError: the store did not answer; the task is retried.
        """
        from tidemark.operations.savepoint_states import patch

        with fail_on_refusal():
            conf, request = self.read_form(context)
            planned = patch.plan_patch(open_tidemark(), request)
        return {"pipeline": conf.pipeline, **self.report(planned)}


class ExecutePatchOperator(PatchOperator):
    """Creates the corrected savepoint on a fork. The original savepoint does not change."""

    ui_color = "#fce8e6"

    def execute(self, context: Context) -> Ids:
        """Returns the result of `plan` and the checkpoint; if it is repeated, it finds the one that it made.

        Raises:
            AirflowSkipException: the form requests only the plan.
            AirflowFailException: a name was taken meanwhile.
            TidemarkError: the store did not answer; the task is retried.
        """
        from tidemark.operations.savepoint_states import patch

        with fail_on_refusal():
            conf, request = self.read_form(context)
            if not conf.execute:
                raise AirflowSkipException("a dry run: trigger it again with execute on")
            result = self.report(patch.patch(open_tidemark(), request))
        for uid in dict.fromkeys([*request.values, *request.deletes]):
            self.suggest_diff(conf.pipeline, uid, result)
        self.log.info("next: tidemark restore %s --savepoint %s", conf.pipeline, result["savepoint"])
        return {"pipeline": conf.pipeline, **result}


def patch_dag(pipelines: Sequence[Pipeline], **options: Unpack[FormOptions]) -> DAG:
    """Creates the DAG that corrects savepoints on demand; call it at the module level of a DAG file.

    Args:
        pipelines: the pipelines that the form offers.
        **options: see `FormOptions`.

    Raises:
        DeclarationError: `pipelines` is empty, or an option is invalid.
    """
    return form_dag(_PATCH_DAG, pipelines, options)


_PAGE = """### A corrected savepoint
Sets and deletes keys on a fork of a savepoint, and pins the fork's first checkpoint under a new name. The original
savepoint does not change. Task `plan` reads the tables and lists the changes; task `patch` makes them if `execute` is
on, and is skipped otherwise. Tables are paths that the worker can read.

REST: `POST /api/v2/dags/patch/dagRuns` with `{"logical_date": null, "conf": {"pipeline": "...", "source": "june",
"name": "june-right", "set_tables": ["aircraft=/data/right.parquet"], "execute": true}}`.

`tidemark state diff PIPELINE UID --from june --to june-right --values` shows the changes.
"""


def _fields(pipelines: list[str]) -> dict[str, Param]:
    return {
        "pipeline": pipeline_field(pipelines),
        "source": source_field(),
        "name": Param(
            "", type="string", title="Name", description="The corrected savepoint's name. You can use a name only once."
        ),
        "set_tables": _tables("Set", "UID=TABLE, one per line: keys with their complete new state, Parquet or Delta."),
        "delete_tables": _tables("Delete", "UID=TABLE, one per line: keys to delete."),
        "execute": switch("Execute", "Off: a dry run. Task plan lists the changes, and nothing is written."),
        **savepoint_fields(),
        "at": text_field(
            "At", "When the set keys were last accessed. Empty: at the time of From.", format="date-time", section=RARE
        ),
        "timeline": text_field("Timeline", "The fork's name. Empty: the savepoint's name.", section=RARE),
        **beginning_fields("Correct"),
    }


def _tables(title: str, description: str) -> Param:
    items = {"type": "string"}
    return Param(None, type=["null", "array"], items=items, title=title, description=description)


_PATCH_DAG = FormKind(
    summary="Patch: create a corrected copy of a savepoint",
    fields=_fields,
    page=_PAGE,
    tasks={PLAN: PlanPatchOperator, PATCH: ExecutePatchOperator},
)
