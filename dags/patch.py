"""Patches on demand: a form that creates a corrected savepoint."""

from pipelines.flights import flights
from tidemark.airflow import patch_dag

dag = patch_dag([flights])
