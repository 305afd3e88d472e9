"""Forks on demand: a form that starts a timeline next to the live one."""

from pipelines.flights import flights
from tidemark.airflow import fork_dag

dag = fork_dag([flights])
