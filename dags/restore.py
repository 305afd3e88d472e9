"""Restores on demand: a form that makes an older checkpoint live again."""

from pipelines.flights import flights
from tidemark.airflow import restore_dag

dag = restore_dag([flights])
