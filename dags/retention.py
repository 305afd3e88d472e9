"""Retention, every day: lets old checkpoints go and deletes the files that nobody needs."""

from pipelines.flights import flights
from tidemark.airflow import retention_dag

dag = retention_dag([flights])
