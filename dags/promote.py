"""Promotes on demand: a form that makes a fork the live timeline."""

from pipelines.flights import flights
from tidemark.airflow import promote_dag

dag = promote_dag([flights])
