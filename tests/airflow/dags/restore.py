"""Restores of the trips, on demand."""

from tests.airflow.pipelines.trips import trips
from tidemark.airflow import restore_dag

dag = restore_dag([trips])
