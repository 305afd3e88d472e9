"""Forks of the trips, on demand."""

from tests.airflow.pipelines.trips import trips
from tidemark.airflow import fork_dag

dag = fork_dag([trips])
