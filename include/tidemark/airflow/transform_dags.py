"""`transform_dag()`: a trigger form that writes the states of a fork with queries; its tasks are plan >> transform."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Unpack

from airflow.sdk import DAG, Context, Param
from airflow.sdk.exceptions import AirflowSkipException
from pydantic import Field

from tidemark.airflow.checkpoint_tasks import Ids, open_tidemark
from tidemark.airflow.form_answers import (
    RARE,
    fail_on_refusal,
    number_field,
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
    from tidemark.operations.savepoint_states.transform import Transformed, TransformRequest

TRANSFORM = "transform"


class TransformConf(StatesConf):
    """The `conf` of a DAG run; see also `StatesConf`.

    Attributes:
        fork: name of the fork.
        queries: `UID=SQL` per operator whose state is written.
        key_groups: number of key groups of every state; None = as stored.
        name: name of the new savepoint; None = the fork's name.
    """

    fork: str
    queries: tuple[str, ...] = ()
    key_groups: int | None = Field(None, strict=True)
    name: str | None = None

    def request(self, owner: str) -> "TransformRequest":
        """Returns the request.

        Raises:
            UsageError: a query or the expiry cannot be parsed.
        """
        from tidemark.operations.savepoint_states.transform import TransformRequest, queries_of

        return TransformRequest(
            fork=self.fork,
            queries=queries_of(self.queries),
            key_groups=self.key_groups,
            name=self.name or None,
            **self.shared_arguments(owner),
        )


class TransformOperator(StatesOperator):
    """A task of the transform DAG."""

    def read_form(self, context: Context) -> tuple[TransformConf, "TransformRequest"]:
        """Returns the validated form and its request, which are the same in every task of the DAG run.

        Raises:
            UsageError, NotFoundError: the form is invalid.
        """
        conf = read_conf(TransformConf, context, self.pipelines)
        return conf, conf.request(context["dag_run"].triggering_user_name or "airflow")

    def report(self, done: "Transformed") -> Ids:
        """Logs the effect of a transform, and returns its names and counts."""
        states = {}
        for uid, state in done.states.items():
            states[uid] = {name: n for name, n in asdict(state).items() if name != "refused"}
            for refused in state.refused:
                some = ", ".join(refused.some)
                self.log.error("%s: %d rows refused, because %s: %s", uid, refused.rows, refused.why, some)
        return self.describe(done, states)


class PlanTransformOperator(TransformOperator):
    """The dry run: runs the queries, checks every row, and shows the effect. Writes nothing."""

    ui_color = "#e8f0fe"

    def execute(self, context: Context) -> Ids:
        """Returns `{"pipeline", "savepoint", "timeline", "from", "states"}`.

        Raises:
            AirflowFailException: the form or a query is invalid, rows are refused, or a name is taken.
            TidemarkError: the store did not answer; the task is retried.
        """
        from tidemark.operations.savepoint_states import transform

        with fail_on_refusal():
            conf, request = self.read_form(context)
            planned = transform.plan_transform(open_tidemark(), request)
            found = self.report(planned)
            transform.refuse_rows(planned)
        return {"pipeline": conf.pipeline, **found}


class ExecuteTransformOperator(TransformOperator):
    """Writes the states of the fork, and pins its first checkpoint. The savepoint that it reads does not change."""

    ui_color = "#fce8e6"

    def execute(self, context: Context) -> Ids:
        """Returns the result of `plan` and the checkpoint; if it is repeated, it finds the one that it made.

        Raises:
            AirflowSkipException: the form requests only the plan.
            AirflowFailException: a name was taken meanwhile.
            TidemarkError: the store did not answer; the task is retried.
        """
        from tidemark.operations.savepoint_states import transform

        with fail_on_refusal():
            conf, request = self.read_form(context)
            if not conf.execute:
                raise AirflowSkipException("a dry run: trigger it again with execute on")
            done = transform.transform(open_tidemark(), request)
            result = self.report(done)
        for uid, state in done.states.items():
            if state.before:
                self.suggest_diff(conf.pipeline, uid, result)
        self.log.info("next: tidemark run %s --timeline %s, then promote it", conf.pipeline, result["timeline"])
        return {"pipeline": conf.pipeline, **result}


def transform_dag(pipelines: Sequence[Pipeline], **options: Unpack[FormOptions]) -> DAG:
    """Creates the DAG that transforms savepoints on demand; call it at the module level of a DAG file.

    Args:
        pipelines: the pipelines that the form offers.
        **options: see `FormOptions`.

    Raises:
        DeclarationError: `pipelines` is empty, or an option is invalid.
    """
    return form_dag(_TRANSFORM_DAG, pipelines, options)


_PAGE = """### A savepoint with other states
Runs a query per operator over the states of a savepoint, writes the answers as the states of a fork, and pins the first
checkpoint of the fork. The savepoint that it reads does not change. Task `plan` runs the queries and shows the effect;
task `transform` writes the states if `execute` is on, and is skipped otherwise.

REST: `POST /api/v2/dags/transform/dagRuns` with `{"logical_date": null, "conf": {"pipeline": "...", "source": "june",
"fork": "busy", "queries": ["routes=FROM routes WHERE flights > 9"], "execute": true}}`.

`tidemark state diff PIPELINE UID --from june --to busy --values` shows the changes.
"""


def _fields(pipelines: list[str]) -> dict[str, Param]:
    return {
        "pipeline": pipeline_field(pipelines),
        "source": source_field(),
        "fork": Param("", type="string", title="Fork", description="The fork's name. You can use a name only once."),
        "queries": Param(
            None,
            type=["null", "array"],
            items={"type": "string"},
            title="Queries",
            description="UID=SQL, one per line: each SELECT returns the new state of an operator.",
        ),
        "execute": switch("Execute", "Off: a dry run. Task plan shows the effect, and nothing is written."),
        **savepoint_fields(),
        "key_groups": number_field(
            "Key groups", "Write all states to this number of them. Empty: as stored.", section=RARE
        ),
        "at": text_field(
            "At",
            "When new and changed keys were last accessed. Empty: at the time of From.",
            format="date-time",
            section=RARE,
        ),
        "name": text_field("Name", "The new savepoint's name. Empty: the fork's name.", section=RARE),
        **beginning_fields("Transform"),
    }


_TRANSFORM_DAG = FormKind(
    summary="Transform: write the states of a fork with queries",
    fields=_fields,
    page=_PAGE,
    tasks={PLAN: PlanTransformOperator, TRANSFORM: ExecuteTransformOperator},
)
