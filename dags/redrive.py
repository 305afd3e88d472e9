"""Redrives on demand: a form that gives an operator its dead letters again."""

from pipelines.flights import flights
from tidemark.airflow import redrive_dag

dag = redrive_dag([flights])
