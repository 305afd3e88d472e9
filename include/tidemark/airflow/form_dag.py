"""DAGs that people trigger with a form: a task that plans and writes nothing, then one that does it.

And what those forms share that begin at a savepoint or a checkpoint.
"""

from collections.abc import Callable, Mapping, Sequence

from airflow.sdk import DAG, Param, chain
from pydantic import Field

from tidemark.airflow.form_answers import SELDOM, PipelineConf, PipelinesOperator, names_of, switch
from tidemark.airflow.retries import retry_arguments
from tidemark.coordinator.checkpoints.restart import FixedDelay
from tidemark.declare.pipeline import Pipeline


class BeginningConf(PipelineConf):
    """The `conf` of a DAG run that begins at a savepoint or a checkpoint.

    Attributes:
        allow_non_restored_state, force: as `tidemark restore` takes them.
    """

    allow_non_restored_state: bool = Field(default=False, strict=True)
    force: bool = Field(default=False, strict=True)


def beginning_fields(drained: str) -> dict[str, Param]:
    """The form's fields of `BeginningConf`.

    Args:
        drained: what is done all the same with a savepoint that the pipeline was drained with.
    """
    gone = "Operators that are gone from the pipeline: leave their state behind."
    return {
        "allow_non_restored_state": switch("Allow non-restored state", gone, section=SELDOM),
        "force": switch("Force", f"{drained} a savepoint that the pipeline was drained with.", section=SELDOM),
    }


def form_dag(
    dag_id: str,
    description: str,
    *,
    pipelines: Sequence[Pipeline],
    form: Callable[[list[str]], Mapping[str, Param]],
    page: str,
    tasks: Mapping[str, type[PipelinesOperator]],
) -> DAG:
    """The DAG; its runs are on demand, one at a time.

    Args:
        dag_id: as Airflow shows it.
        description: one line.
        pipelines: the form offers these.
        form: its fields, from the names of the pipelines.
        page: its documentation, Markdown.
        tasks: by name, in their order: `plan`, which checks the form and tells what would happen, and what does it.

    Raises:
        DeclarationError: no pipelines.
    """
    names = names_of(pipelines, f"{list(tasks)[-1]}_dag")
    with DAG(
        dag_id,
        description=description,
        schedule=None,
        catchup=False,
        max_active_runs=1,
        params=dict(form(names)),
        tags=["tidemark", *names],
        doc_md=page,
    ) as dag:
        shared = {"pipelines": names, **retry_arguments(FixedDelay(attempts=3))}
        chain(*(operator(task_id=name, doc_md=operator.__doc__, **shared) for name, operator in tasks.items()))
    return dag
