"""A pipeline for backfills that restore first: daily, and never by itself."""

from datetime import datetime

from tests.airflow.pipelines.ferries import ferries
from tidemark.airflow import checkpoint_dag

dag = checkpoint_dag(
    ferries, schedule="@daily", start=datetime(2024, 3, 1), end=datetime(2024, 3, 5), until="interval_end"
)
