"""Tells when the flights have completed no checkpoint for too long: TIDEMARK_CHECKPOINT_DEADLINE."""

from pipelines.flights import flights
from tidemark.airflow import watch_dag

dag = watch_dag([flights])
