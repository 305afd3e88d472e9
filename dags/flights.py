"""Flights, month by month: one checkpoint for each month of 2013 in New York time."""

from datetime import datetime

from pipelines.flights import flights
from tidemark import Retention
from tidemark.airflow import checkpoint_dag

dag = checkpoint_dag(
    flights,
    schedule="@monthly",
    timezone="America/New_York",
    start=datetime(2013, 1, 1),
    end=datetime(2014, 1, 1),
    until="interval_end",
    retention=Retention.keep_last(6),
)
