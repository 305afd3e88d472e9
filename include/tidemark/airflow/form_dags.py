"""Builds DAGs with a trigger form: one task plans and writes nothing, the next carries the plan out.

Also has the fields that are common to forms that begin at a savepoint or a checkpoint.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from airflow.sdk import DAG, Param, chain
from pydantic import Field

from tidemark.airflow.dag_options import SharedOptions, shared_arguments
from tidemark.airflow.form_answers import RARE, PipelineConf, PipelinesOperator, names_of, switch
from tidemark.airflow.retries import retry_arguments
from tidemark.coordinator.checkpoints.restart import FixedDelay
from tidemark.declare.pipeline import Pipeline


class BeginningConf(PipelineConf):
    """The `conf` of a DAG run that begins at a savepoint or a checkpoint.

    Attributes:
        allow_non_restored_state, force: as for `tidemark restore`.
    """

    allow_non_restored_state: bool = Field(default=False, strict=True)
    force: bool = Field(default=False, strict=True)


def beginning_fields(drained: str) -> dict[str, Param]:
    """Returns the form's fields for `BeginningConf`.

    Args:
        drained: the verb to show for a savepoint that drained the pipeline, for example `Begin at`.
    """
    gone = "Drop the state of operators that the pipeline no longer declares."
    return {
        "allow_non_restored_state": switch("Allow non-restored state", gone, section=RARE),
        "force": switch("Force", f"{drained} a savepoint even if it drained the pipeline.", section=RARE),
    }


@dataclass(frozen=True, kw_only=True)
class FormKind:
    """One kind of DAG with a trigger form.

    Attributes:
        summary: one line that Airflow shows in its list of DAGs.
        fields: makes the form's fields from the names of the pipelines.
        page: the DAG's documentation, in Markdown.
        tasks: the operators by task id, in order: `plan`, which checks the form and shows the plan, and the task that
            carries it out and names the kind.
    """

    summary: str
    fields: Callable[[list[str]], Mapping[str, Param]]
    page: str
    tasks: Mapping[str, type[PipelinesOperator]]

    @property
    def name(self) -> str:
        """The last task's name; the DAG has the same one by default."""
        return list(self.tasks)[-1]


class FormOptions(SharedOptions, total=False):
    """Options of every DAG with a trigger form: `default_args`, `tags` and `pool`, see `SharedOptions`, and the id.

    Attributes:
        dag_id: the DAG's id (default: the kind's name, such as `restore`).
    """

    dag_id: str


def form_dag(kind: FormKind, pipelines: Sequence[Pipeline], options: FormOptions) -> DAG:
    """Creates the DAG; it runs on demand, one run at a time.

    Raises:
        DeclarationError: `pipelines` is empty, or an option is invalid.
        TypeError: there is no such option.
    """
    names = names_of(pipelines, f"{kind.name}_dag")
    shared_options = options.copy()
    with DAG(
        shared_options.pop("dag_id", kind.name),
        description=kind.summary,
        schedule=None,
        is_paused_upon_creation=False,  # a form that starts nothing by itself
        catchup=False,
        max_active_runs=1,
        params=dict(kind.fields(names)),
        doc_md=kind.page,
        **shared_arguments(["tidemark", *names], shared_options),
    ) as dag:
        shared = {"pipelines": names, **retry_arguments(FixedDelay(attempts=3))}
        chain(*(operator(task_id=name, doc_md=operator.__doc__, **shared) for name, operator in kind.tasks.items()))
    return dag
