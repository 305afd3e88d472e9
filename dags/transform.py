"""Transforms on demand: a form that writes the states of a fork with queries over a savepoint."""

from pipelines.flights import flights
from tidemark.airflow import transform_dag

dag = transform_dag([flights])
