"""Ends of timelines on demand: a form that closes a fork."""

from pipelines.flights import flights
from tidemark.airflow import close_dag

dag = close_dag([flights])
