"""Legal holds on demand: a form that keeps a savepoint, or releases it."""

from pipelines.flights import flights
from tidemark.airflow import hold_dag

dag = hold_dag([flights])
