"""`fork_dag()`: a trigger form that begins a timeline beside the live one, plan >> fork (Q6)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow.sdk import DAG, Context, Param

from tidemark.airflow.checkpoint_tasks import PLAN, Ids, open_tidemark
from tidemark.airflow.form_answers import PipelinesOperator, answering, asked_for, pipeline_field, text_field
from tidemark.airflow.form_dag import BeginningConf, beginning_fields, form_dag
from tidemark.declare.pipeline import Pipeline
from tidemark.model.core.names import parse_id

if TYPE_CHECKING:
    from tidemark.coordinator.recovery.restore_request import RestoreRequest

FORK = "fork"


class ForkConf(BeginningConf):
    """The `conf` of a DAG run.

    Attributes:
        source: where the fork begins: a savepoint, or a checkpoint as in `chk-17`, of any timeline.
        name: of the timeline.
        note: what it is for.
    """

    source: str
    name: str
    note: str | None = None

    def request(self, run_id: str) -> "RestoreRequest":
        """What is asked for; the DAG run's id is that of the request, so a task that is repeated does it once.

        Raises:
            UsageError: nothing to begin at.
        """
        from tidemark.errors import UsageError
        from tidemark.operations.patch import source_of

        if not self.source:
            raise UsageError("a fork of nothing", next="give source: a savepoint, or a checkpoint as in chk-17.")
        found = source_of(self.source, force=self.force, allow_non_restored_state=self.allow_non_restored_state)
        return replace(found, request=run_id, note=self.note or "")


class ForkOperator(PipelinesOperator):
    """A task of the fork DAG."""

    def asked(self, context: Context) -> tuple[ForkConf, "RestoreRequest"]:
        """The form, checked, and what it asks for: the same in every task of the DAG run.

        Raises:
            UsageError, NotFoundError: it does not fit.
        """
        conf = asked_for(ForkConf, context, self.pipelines)
        return conf, conf.request(context["dag_run"].run_id)


class PlanForkOperator(ForkOperator):
    """Checks the form: the name, whether the checkpoint is whole, whether the code of now fits it. Writes nothing."""

    ui_color = "#e8f0fe"

    def execute(self, context: Context) -> Ids:
        """Returns `{"pipeline", "checkpoint", "timeline"}`; the checkpoint is fixed here.

        Raises:
            AirflowFailException: the form does not fit, or the name is taken; the message says what to type.
            TidemarkError: the store did not answer; the task is retried.
        """
        from tidemark.answers.bodies import body_of
        from tidemark.operations import timelines
        from tidemark.operations.timelines import describe_fork

        with answering():
            conf, request = self.asked(context)
            wanted = timelines.plan_fork(open_tidemark(), conf.pipeline, conf.name, request)
        for name, value in body_of(describe_fork(wanted)).items():
            self.log.info("%s: %s", name, value)
        return {"pipeline": conf.pipeline, "checkpoint": f"chk-{wanted.parent}", "timeline": wanted.timeline}


class ExecuteForkOperator(ForkOperator):
    """Begins the timeline. Copies nothing, starts no Spark; the live timeline goes on."""

    ui_color = "#fce8e6"

    def execute(self, context: Context) -> Ids:
        """Returns what `plan` returned; a repetition finds the fork that it began.

        Raises:
            AirflowFailException: the name was taken meanwhile; the message says what to type.
            TidemarkError: the store did not answer; the task is retried.
        """
        from tidemark.operations import timelines

        planned: Ids = context["ti"].xcom_pull(task_ids=PLAN)
        with answering():
            conf, request = self.asked(context)
            if request.savepoint is None:
                request = replace(request, checkpoint=parse_id(planned["checkpoint"]))
            done = timelines.fork(open_tidemark(), conf.pipeline, conf.name, request)
        began = "began" if done.won else "was begun by this run before"
        self.log.info("timeline %s %s, at %s", conf.name, began, planned["checkpoint"])
        self.log.info("next: tidemark run %s --timeline %s", conf.pipeline, conf.name)
        return planned


def fork_dag(pipelines: Sequence[Pipeline], *, dag_id: str = "fork") -> DAG:
    """The DAG that begins forks on demand; called at the module level of a DAG file.

    Args:
        pipelines: the form offers these.
        dag_id: as Airflow shows it.

    Raises:
        DeclarationError: no pipelines.
    """
    return form_dag(
        dag_id,
        "Fork: begin a timeline beside the live one",
        pipelines=pipelines,
        form=_form,
        page=_PAGE,
        tasks={PLAN: PlanForkOperator, FORK: ExecuteForkOperator},
    )


_PAGE = """### A fork on demand
Begins a timeline of its own at a savepoint or a checkpoint, beside the live one. It copies nothing, and sends nothing
to Kafka. Task `plan` checks the form and says what to type; `fork` begins the timeline.

REST: `POST /api/v2/dags/fork/dagRuns` with
`{"logical_date": null, "conf": {"pipeline": "...", "source": "before-upgrade", "name": "what-if"}}`.

`tidemark run PIPELINE --timeline NAME` makes its checkpoints, `tidemark promote PIPELINE NAME` makes it live.
"""


def _form(pipelines: list[str]) -> dict[str, Param]:
    where = "A savepoint, or a checkpoint as in chk-17, of any timeline."
    named = "Of the timeline: letters, digits, '_', '.' and '-', as in what-if. A name is used once."
    return {
        "pipeline": pipeline_field(pipelines),
        "source": Param("", type="string", title="From", description=where),
        "name": Param("", type="string", title="Name", description=named),
        "note": text_field("Note", "What it is for."),
        **beginning_fields("Fork"),
    }
