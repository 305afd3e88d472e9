"""The DAG under test: daily, with two retries that come at once."""

from datetime import datetime, timedelta

from tests.airflow.pipelines.trips import trips
from tidemark.airflow import checkpoint_dag, compaction_dag
from tidemark.coordinator.restart import FixedDelay

dag = checkpoint_dag(
    trips,
    schedule="@daily",
    start=datetime(2024, 1, 1),
    until="interval_end",
    restart=FixedDelay(attempts=2, delay=timedelta(0)),
)
compaction = compaction_dag(trips)
