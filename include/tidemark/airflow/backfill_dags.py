"""`backfill_dag()`: a trigger form that backfills from a savepoint, and can ask before it promotes the fork."""

from collections.abc import Sequence
from typing import Unpack

from airflow.sdk import DAG, Asset, chain

from tidemark.airflow.assets import checkpoint_asset
from tidemark.airflow.backfill_conf import form
from tidemark.airflow.backfill_tasks import (
    ApproveOperator,
    CompareOperator,
    PlanBackfillOperator,
    PromoteOperator,
    RepeatOperator,
)
from tidemark.airflow.dag_options import SharedOptions, shared_arguments
from tidemark.airflow.form_answers import names_of
from tidemark.airflow.retries import retry_arguments
from tidemark.airflow.task_names import PLAN
from tidemark.coordinator.checkpoints.restart import FixedDelay
from tidemark.declare.pipeline import Pipeline

REPEAT, COMPARE, APPROVE, PROMOTE = "repeat", "compare", "approve", "promote"


def backfill_dag(pipelines: Sequence[Pipeline], *, dag_id: str = "backfill", **options: Unpack[SharedOptions]) -> DAG:
    """Creates the DAG that backfills on demand; call it at the module level of a DAG file.

    A step that fails for good fails the DAG run, because no later step can be made without it.

    Args:
        pipelines: the pipelines that the form offers.
        dag_id: the DAG's id.
        **options: `default_args`, `tags` and `pool`, see `SharedOptions`.

    Raises:
        DeclarationError: `pipelines` is empty, or an option is invalid.
    """
    names = names_of(pipelines, "backfill_dag")
    checkpoints = {pipeline.name: checkpoint_asset(pipeline) for pipeline in pipelines}
    with DAG(
        dag_id,
        description="Backfill from a savepoint: repeat, compare, promote",
        schedule=None,
        is_paused_upon_creation=False,
        catchup=False,
        params=form(names),
        doc_md=_PAGE,
        **shared_arguments(["tidemark", *names], options),
    ) as dag:
        _tasks(checkpoints)
    return dag


def _tasks(checkpoints: dict[str, Asset]) -> None:
    names = list(checkpoints)
    retries = retry_arguments(FixedDelay(attempts=3))
    plan = PlanBackfillOperator(task_id=PLAN, doc_md=PlanBackfillOperator.__doc__, pipelines=names, **retries)
    repeat = RepeatOperator.partial(
        task_id=REPEAT,
        doc_md=RepeatOperator.__doc__,
        pipelines=names,
        max_active_tis_per_dagrun=1,
        map_index_template="{{ repeated }}",
        **retries,
    ).expand_kwargs(plan.output)
    chain(
        plan,
        repeat,
        CompareOperator(task_id=COMPARE, doc_md=CompareOperator.__doc__, pipelines=names, **retries),
        ApproveOperator(task_id=APPROVE, doc_md=ApproveOperator.__doc__, pipelines=names),
        PromoteOperator(task_id=PROMOTE, doc_md=PromoteOperator.__doc__, checkpoints=checkpoints, **retries),
    )


_PAGE = """### A backfill from a savepoint
Repeats the checkpoints since a savepoint on a fork, with the current code: the same ranges, logical time and watermark,
one mapped task per step, or per several steps if Airflow allows fewer tasks (`core.max_map_length`). The live timeline
keeps running meanwhile. Then the fork's state is compared with the live one. Depending on the mode, the fork becomes
live never (`compare`), at once (`promote`), or when you approve it (`approve`).

To continue a failed run where it stopped, trigger the DAG again with the same form.

REST: `POST /api/v2/dags/backfill/dagRuns` with
`{"logical_date": null, "conf": {"pipeline": "...", "savepoint": "end-of-june", "mode": "approve"}}`.

`tidemark backfill PIPELINE --from-savepoint NAME` does the same without Airflow.
"""
