"""`publication_dag()`: publishes after checkpoints, in parallel with later ones, and never delays any."""

from datetime import timedelta
from typing import Any, Unpack

from airflow.sdk import DAG, Asset, Context
from airflow.sdk.definitions.asset import BaseAsset

from tidemark.airflow.assets import checkpoints_of, publication_asset, state_assets
from tidemark.airflow.checkpoint_tasks import Ids, PipelineOperator, announce, open_tidemark, typed_failures
from tidemark.airflow.dag_options import SharedOptions, shared_arguments
from tidemark.airflow.retries import StrategyName, restart_strategy, retry_arguments
from tidemark.coordinator.checkpoints.restart import RestartStrategy
from tidemark.declare.pipeline import Pipeline
from tidemark.errors import DeclarationError
from tidemark.model.schema.operator_schema import with_state


class PublishOperator(PipelineOperator):
    """Brings one target to the newest checkpoint, and finishes the step of an earlier task that died.

    Args:
        publication: name of the publication.
        published: the asset with an event for each step.
        **kwargs: as PipelineOperator takes them.
    """

    ui_color = "#e0f2f1"
    template_fields = ("publication",)

    def __init__(self, *, publication: str, published: Asset, **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(outlets=[published], **kwargs)
        self.publication = publication
        self.published = published

    def execute(self, context: Context) -> Ids:
        """Returns `{"published": [checkpoints]}`.

        Raises:
            AirflowFailException: no retry can fix the error; for example, others have changed the rows of the target.
            TidemarkError: any other error; the task is retried, and the run after the next checkpoint publishes anyway.
        """
        from tidemark.operations.publications import publishing

        opened, self.outlets = open_tidemark(), []
        with typed_failures():
            made = publishing.publish(opened, self.pipeline, self.publication)
        for step in made:
            self.log.info(
                "%s of %s: %s has it as version %s (%d rows written, %d deleted, %d bytes)",
                step.mode, step.checkpoint, step.place, step.version, step.inserted, step.deleted, step.bytes,
            )  # fmt: skip
        if made:
            self.outlets = [self.published]
            announce(context, [self.published], made[-1])
        else:
            self.log.info("%s has the newest checkpoint, or was dropped", self.publication)
        return {"published": [step.checkpoint for step in made]}


def publication_dag(
    pipeline: Pipeline,
    *,
    schedule: str | timedelta | BaseAsset | None = None,
    restart: StrategyName | RestartStrategy = "exponential-delay",
    **options: Unpack[SharedOptions],
) -> DAG:
    """Creates the DAG that publishes a pipeline's states, with one task for each publication.

    By default it runs after the pipeline's checkpoints. Checkpoints that are completed while it runs are published by
    one more run. With a schedule of your own, one difference brings a target over all checkpoints since the last run.

    Args:
        pipeline: the declaration.
        schedule: cron expression in UTC, preset, timedelta or assets; None = after its checkpoints.
        restart: as in `checkpoint_dag`.
        **options: `default_args`, `tags` and `pool`, see `SharedOptions`.

    Raises:
        DeclarationError: the pipeline declares no publication, or an option is invalid.
    """
    if not pipeline.publications:
        raise DeclarationError(
            f"{pipeline.name} declares no publication",
            next='add one to an operator, as in publish=[DeltaMirror("/lake/aircraft")].',
        )
    states = dict(zip(with_state(pipeline.schemas()), state_assets(pipeline), strict=True))
    with DAG(
        f"{pipeline.name}_publish",
        description=f"Publications of {pipeline.name}: {', '.join(p.name for _, p in pipeline.publications)}",
        schedule=checkpoints_of(pipeline) if schedule is None else schedule,
        catchup=False,
        max_active_runs=1,
        **shared_arguments(["tidemark", pipeline.name], options),
        doc_md=f"Publishes states of `{pipeline.name}`, in parallel with later checkpoints.",
    ) as dag:
        for uid, publication in pipeline.publications:
            PublishOperator(
                task_id=publication.name,
                doc_md=PublishOperator.__doc__,
                pipeline=pipeline.name,
                publication=publication.name,
                published=publication_asset(pipeline, publication.name),
                inlets=[states[uid]],
                **retry_arguments(restart_strategy(restart)),
            )
    return dag
