"""Savepoints of the trips, on demand and daily."""

from datetime import datetime

from tests.airflow.pipelines.trips import trips
from tidemark.airflow import savepoint_dag

dag = savepoint_dag([trips])
daily = savepoint_dag([trips], dag_id="daily", schedule="@daily", start=datetime(2024, 1, 1), expires="30d")
