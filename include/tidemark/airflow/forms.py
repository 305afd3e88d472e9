"""A DAG that people trigger with a form: a task that plans and writes nothing, then one that does it."""

from collections.abc import Mapping, Sequence

from airflow.sdk import DAG, Param, chain

from tidemark.airflow.answering import PipelinesOperator
from tidemark.airflow.retrying import retry_arguments
from tidemark.coordinator.checkpoints.restart import FixedDelay


def form_dag(
    dag_id: str,
    description: str,
    *,
    pipelines: Sequence[str],
    form: Mapping[str, Param],
    page: str,
    tasks: Mapping[str, type[PipelinesOperator]],
) -> DAG:
    """The DAG; its runs are on demand, one at a time.

    Args:
        dag_id: as Airflow shows it.
        description: one line.
        pipelines: names that the form offers.
        form: its fields.
        page: its documentation, Markdown.
        tasks: by name, in their order: `plan`, which checks the form and tells what would happen, and what does it.
    """
    with DAG(
        dag_id,
        description=description,
        schedule=None,
        catchup=False,
        max_active_runs=1,
        params=dict(form),
        tags=["tidemark", *pipelines],
        doc_md=page,
    ) as dag:
        shared = {"pipelines": pipelines, **retry_arguments(FixedDelay(attempts=3))}
        chain(*(operator(task_id=name, doc_md=operator.__doc__, **shared) for name, operator in tasks.items()))
    return dag
