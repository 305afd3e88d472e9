"""Weather, quarter by quarter: one checkpoint for each quarter of 2013 in New York time."""

from datetime import datetime

from pipelines.weather import weather
from tidemark.airflow import checkpoint_dag

dag = checkpoint_dag(
    weather,
    schedule="0 0 1 */3 *",
    timezone="America/New_York",
    start=datetime(2013, 1, 1),
    end=datetime(2014, 1, 1),
    until="interval_end",
)
