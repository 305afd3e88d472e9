"""The pipeline of the DAG tests, daily, on the real stack."""

from datetime import datetime

from tests.airflow.pipelines.trips import trips
from tidemark.airflow import checkpoint_dag, compaction_dag

dag = checkpoint_dag(
    trips, schedule="@daily", start=datetime(2024, 3, 1), end=datetime(2024, 3, 3), until="interval_end"
)
compaction = compaction_dag(trips)
