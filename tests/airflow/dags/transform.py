"""Transforms on demand."""

from tests.airflow.pipelines.trips import trips
from tidemark.airflow import transform_dag

dag = transform_dag([trips])
