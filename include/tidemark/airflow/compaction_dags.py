"""`compaction_dag()`: compacts after each checkpoint, in parallel with later ones; it may fail or be late."""

from typing import Any, Unpack

from airflow.sdk import DAG, Context, PartitionedAssetTimetable

from tidemark.airflow.airflow_metrics import observe
from tidemark.airflow.assets import checkpoint_asset, state_assets
from tidemark.airflow.checkpoint_tasks import Ids, PipelineOperator, open_tidemark, typed_failures
from tidemark.airflow.dag_options import SharedOptions, shared_arguments
from tidemark.airflow.retries import StrategyName, restart_strategy, retry_arguments
from tidemark.airflow.spark_jobs import COMPACTION_JOB, SparkJob, spark_job
from tidemark.coordinator.checkpoints.restart import RestartStrategy
from tidemark.declare.pipeline import Pipeline


class CompactOperator(PipelineOperator):
    """Merges runs of the state, and files of sinks and dead letters, that are due.

    The next plan adopts the result; until then nothing changes.
    """

    ui_color = "#f3e8fd"

    def __init__(self, **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(**kwargs)
        self._job: SparkJob | None = None

    def execute(self, context: Context) -> Ids:
        """Returns `{"compacted": [uids]}`.

        Raises:
            AirflowFailException: no retry can fix the error.
            TidemarkError: any other error; the task is retried, and the next checkpoint starts another run anyway.
        """
        self._job = spark_job(COMPACTION_JOB, "compact", self.log.info)
        with typed_failures():
            done: Ids = self._job.execute(self.pipeline)
        observe(open_tidemark(), self.pipeline)
        self.log.info("compacted: %s", ", ".join(done["compacted"]) or "no compaction was due")
        return done

    def on_kill(self) -> None:
        """Ends the driver, where this task started one."""
        if self._job is not None:
            self._job.kill()


def compaction_dag(
    pipeline: Pipeline,
    *,
    restart: StrategyName | RestartStrategy = "fixed-delay",
    **options: Unpack[SharedOptions],
) -> DAG:
    """Creates the DAG that compacts a pipeline's state, sinks and dead letters, with one run per completed checkpoint.

    The checkpoint's event carries a partition key, and Airflow passes such events to partitioned timetables only.

    Args:
        pipeline: the declaration.
        restart: as in `checkpoint_dag`.
        **options: `default_args`, `tags` and `pool`, see `SharedOptions`.

    Raises:
        DeclarationError: an option is invalid.
    """
    with DAG(
        f"{pipeline.name}_compact",
        description=f"Compaction of {pipeline.name}, after each of its checkpoints",
        schedule=PartitionedAssetTimetable(assets=checkpoint_asset(pipeline)),
        catchup=False,
        max_active_runs=1,
        dagrun_timeout=pipeline.checkpoint_timeout,
        **shared_arguments(["tidemark", pipeline.name], options),
        doc_md=f"Compacts the state, sinks and dead letters of `{pipeline.name}`, in parallel with later checkpoints."
        " No result changes.",
    ) as dag:
        CompactOperator(
            task_id="compact",
            doc_md=CompactOperator.__doc__,
            pipeline=pipeline.name,
            inlets=[*state_assets(pipeline)],
            **retry_arguments(restart_strategy(restart)),
        )
    return dag
