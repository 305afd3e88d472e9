"""Alerts you when the flights have completed no checkpoint within TIDEMARK_CHECKPOINT_DEADLINE."""

from pipelines.flights import flights
from tidemark.airflow import watch_dag

dag = watch_dag([flights])
