"""Compacts the flights' state after each checkpoint, so that it stays fast to read."""

from pipelines.flights import flights
from tidemark.airflow import compaction_dag

dag = compaction_dag(flights)
