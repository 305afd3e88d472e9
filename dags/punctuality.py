"""Punctuality, quarter by quarter of 2013 in New York time: windows, timers and a join of event time."""

from datetime import datetime

from pipelines.punctuality import punctuality
from tidemark.airflow import checkpoint_dag

dag = checkpoint_dag(
    punctuality,
    schedule="0 0 1 */3 *",
    timezone="America/New_York",
    start=datetime(2013, 1, 1),
    end=datetime(2014, 1, 1),
    until="interval_end",
)
