"""The stop DAG of the trips."""

from tests.airflow.pipelines.trips import trips
from tidemark.airflow import stop_dag

dag = stop_dag([trips])
