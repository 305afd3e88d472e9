"""The trips once more, with callbacks of a user; the first of the DAG's raises."""

from tests.airflow.pipelines.trips import trips
from tests.airflow.user_callbacks import broken, run_failed, run_succeeded, task_failed, task_succeeded
from tidemark.airflow import checkpoint_dag

dag = checkpoint_dag(
    trips,
    dag_id="trips_called",
    restart="none",
    on_failure=[broken, run_failed],
    on_success=run_succeeded,
    default_args={"on_failure_callback": task_failed, "on_success_callback": [task_succeeded]},
)
