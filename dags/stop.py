"""Stops on demand: a form that stops a pipeline and pauses its schedule."""

from pipelines.flights import flights
from tidemark.airflow import stop_dag

dag = stop_dag([flights])
