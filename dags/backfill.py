"""Backfills from a savepoint: a form that repeats the checkpoints since then, compares the result, and promotes it."""

from pipelines.flights import flights
from tidemark.airflow import backfill_dag

dag = backfill_dag([flights])
