"""Restores on demand: a form that goes back to an older checkpoint."""

from pipelines.flights import flights
from pipelines.weather import weather
from tidemark.airflow import restore_dag

dag = restore_dag([flights, weather])
