"""Alerts you when the flights are late: by TIDEMARK_CHECKPOINT_DEADLINE, or without it by their schedule."""

from pipelines.flights import flights
from tidemark.airflow import watch_dag

dag = watch_dag([flights])
