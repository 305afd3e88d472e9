"""Erasures on demand: a form that removes a key from every restore point."""

from pipelines.flights import flights
from tidemark.airflow import erase_dag

dag = erase_dag([flights])
