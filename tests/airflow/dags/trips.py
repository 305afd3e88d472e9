"""The DAG under test: daily, with two retries that come at once; the two newest checkpoints are kept."""

from datetime import datetime, timedelta

from tests.airflow.pipelines.trips import trips
from tidemark import Retention
from tidemark.airflow import backfill_dag, checkpoint_dag, compaction_dag
from tidemark.coordinator.checkpoints.restart import FixedDelay

dag = checkpoint_dag(
    trips,
    schedule="@daily",
    start=datetime(2024, 1, 1),
    until="interval_end",
    retention=Retention.keep_last(2),
    restart=FixedDelay(attempts=2, delay=timedelta(0)),
)
compaction = compaction_dag(trips)
backfill = backfill_dag([trips])
