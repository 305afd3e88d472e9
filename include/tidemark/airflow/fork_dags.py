"""`fork_dag()`: a trigger form that starts a timeline next to the live one; its tasks are plan >> fork."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Unpack

from airflow.sdk import DAG, Context, Param

from tidemark.airflow.checkpoint_tasks import Ids, open_tidemark
from tidemark.airflow.form_answers import PipelinesOperator, fail_on_refusal, pipeline_field, read_conf, text_field
from tidemark.airflow.form_dags import BeginningConf, FormKind, FormOptions, beginning_fields, form_dag
from tidemark.airflow.task_names import PLAN
from tidemark.declare.pipeline import Pipeline
from tidemark.model.core.names import parse_id

if TYPE_CHECKING:
    from tidemark.coordinator.recovery.restore_request import RestoreRequest

FORK = "fork"


class ForkConf(BeginningConf):
    """The `conf` of a DAG run.

    Attributes:
        source: the savepoint or checkpoint (such as `chk-17`) where the fork begins, of any timeline.
        name: the timeline's name.
        note: a note for people.
    """

    source: str
    name: str
    note: str | None = None

    def request(self, run_id: str) -> "RestoreRequest":
        """Returns the request. It has the DAG run's id, so a repeated task carries it out only once.

        Raises:
            UsageError: `source` is empty.
        """
        from tidemark.errors import UsageError
        from tidemark.operations.savepoint_states.patch import source_of

        if not self.source:
            raise UsageError("source is missing", next="give source: a savepoint, or a checkpoint such as chk-17.")
        found = source_of(self.source, force=self.force, allow_non_restored_state=self.allow_non_restored_state)
        return replace(found, request=run_id, note=self.note or "")


class ForkOperator(PipelinesOperator):
    """A task of the fork DAG."""

    def read_form(self, context: Context) -> tuple[ForkConf, "RestoreRequest"]:
        """Returns the validated form and its request, which are the same in every task of the DAG run.

        Raises:
            UsageError, NotFoundError: the form is invalid.
        """
        conf = read_conf(ForkConf, context, self.pipelines)
        return conf, conf.request(context["dag_run"].run_id)


class PlanForkOperator(ForkOperator):
    """Checks the name, that the checkpoint is undamaged, and that the current code fits its state. Writes nothing."""

    ui_color = "#e8f0fe"

    def execute(self, context: Context) -> Ids:
        """Returns `{"pipeline", "checkpoint", "timeline"}`; the next task uses this checkpoint.

        Raises:
            AirflowFailException: the form is invalid, or the name is taken; the message says what to do next.
            TidemarkError: the store did not answer; the task is retried.
        """
        from tidemark.model.checkpoint.codec import body_of
        from tidemark.operations import timelines
        from tidemark.operations.timelines import describe_fork

        with fail_on_refusal():
            conf, request = self.read_form(context)
            wanted = timelines.plan_fork(open_tidemark(), conf.pipeline, conf.name, request)
        for name, value in body_of(describe_fork(wanted)).items():
            self.log.info("%s: %s", name, value)
        return {"pipeline": conf.pipeline, "checkpoint": f"chk-{wanted.parent}", "timeline": wanted.timeline}


class ExecuteForkOperator(ForkOperator):
    """Starts the timeline. Copies nothing and needs no Spark; the live timeline keeps running."""

    ui_color = "#fce8e6"

    def execute(self, context: Context) -> Ids:
        """Returns the result of `plan`; if it is repeated, it finds the fork that it started.

        Raises:
            AirflowFailException: the name was taken meanwhile; the message says what to do next.
            TidemarkError: the store did not answer; the task is retried.
        """
        from tidemark.operations import timelines

        planned: Ids = context["ti"].xcom_pull(task_ids=PLAN)
        with fail_on_refusal():
            conf, request = self.read_form(context)
            if request.savepoint is None:
                request = replace(request, checkpoint=parse_id(planned["checkpoint"]))
            done = timelines.fork(open_tidemark(), conf.pipeline, conf.name, request)
        result = "started" if done.won else "had been started by this run before"
        self.log.info("timeline %s %s at %s", conf.name, result, planned["checkpoint"])
        self.log.info("next: tidemark run %s --timeline %s", conf.pipeline, conf.name)
        return planned


def fork_dag(pipelines: Sequence[Pipeline], **options: Unpack[FormOptions]) -> DAG:
    """Creates the DAG that starts forks on demand; call it at the module level of a DAG file.

    Args:
        pipelines: the pipelines that the form offers.
        **options: see `FormOptions`.

    Raises:
        DeclarationError: `pipelines` is empty, or an option is invalid.
    """
    return form_dag(_FORK_DAG, pipelines, options)


_PAGE = """### A fork on demand
Starts a separate timeline at a savepoint or a checkpoint, next to the live one. A fork copies nothing and sends nothing
to Kafka. Task `plan` checks the form; task `fork` starts the timeline.

REST: `POST /api/v2/dags/fork/dagRuns` with
`{"logical_date": null, "conf": {"pipeline": "...", "source": "before-upgrade", "name": "what-if"}}`.

`tidemark run PIPELINE --timeline NAME` makes its checkpoints; `tidemark promote PIPELINE NAME` makes it live.
"""


def _fields(pipelines: list[str]) -> dict[str, Param]:
    where = "A savepoint, or a checkpoint such as chk-17, of any timeline."
    named = "The timeline's name: letters, digits, '_', '.' and '-', for example what-if. You can use a name only once."
    return {
        "pipeline": pipeline_field(pipelines),
        "source": Param("", type="string", title="From", description=where),
        "name": Param("", type="string", title="Name", description=named),
        "note": text_field("Note", "A note for people."),
        **beginning_fields("Fork"),
    }


_FORK_DAG = FormKind(
    summary="Fork: start a timeline next to the live one",
    fields=_fields,
    page=_PAGE,
    tasks={PLAN: PlanForkOperator, FORK: ExecuteForkOperator},
)
