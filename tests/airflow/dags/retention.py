"""Retention of the trips, without a grace time; and one that asks first."""

from tests.airflow.pipelines.trips import trips
from tidemark.airflow import retention_dag

dag = retention_dag([trips], grace="0")
asking = retention_dag([trips], dag_id="asking", schedule=None, approve=True)
