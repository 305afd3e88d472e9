"""Builds DAGs with a trigger form: one task plans and writes nothing, the next carries the plan out.

Also has the fields that are common to forms that begin at a savepoint or a checkpoint.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Unpack

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


def form_dag(
    dag_id: str,
    description: str,
    *,
    pipelines: Sequence[Pipeline],
    form: Callable[[list[str]], Mapping[str, Param]],
    page: str,
    tasks: Mapping[str, type[PipelinesOperator]],
    **options: Unpack[SharedOptions],
) -> DAG:
    """Creates the DAG; it runs on demand, one run at a time.

    Args:
        dag_id: the DAG's id.
        description: one line that Airflow shows in its list of DAGs.
        pipelines: the pipelines that the form offers.
        form: makes the form's fields from the names of the pipelines.
        page: the DAG's documentation, in Markdown.
        tasks: the operators by task id, in order: `plan`, which checks the form and shows the plan, and the task that
            carries it out.
        **options: `default_args`, `tags` and `pool`, see `SharedOptions`.

    Raises:
        DeclarationError: `pipelines` is empty, or an option is invalid.
    """
    names = names_of(pipelines, f"{list(tasks)[-1]}_dag")
    with DAG(
        dag_id,
        description=description,
        schedule=None,
        catchup=False,
        max_active_runs=1,
        params=dict(form(names)),
        doc_md=page,
        **shared_arguments(["tidemark", *names], options),
    ) as dag:
        shared = {"pipelines": names, **retry_arguments(FixedDelay(attempts=3))}
        chain(*(operator(task_id=name, doc_md=operator.__doc__, **shared) for name, operator in tasks.items()))
    return dag
