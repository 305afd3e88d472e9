"""Keeps the flights' state quick to read, after each checkpoint."""

from pipelines.flights import flights
from tidemark.airflow import compaction_dag

dag = compaction_dag(flights)
