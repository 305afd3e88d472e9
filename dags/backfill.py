"""Backfills from a savepoint: a form that repeats what was recorded since, compares, and promotes."""

from pipelines.flights import flights
from tidemark.airflow import backfill_dag

dag = backfill_dag([flights])
