"""Savepoints on demand: a form that pins a checkpoint under a name."""

from pipelines.flights import flights
from pipelines.weather import weather
from tidemark.airflow import savepoint_dag

dag = savepoint_dag([flights, weather])
