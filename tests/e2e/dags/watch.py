"""The watch over the trips, when it is asked for."""

from tests.airflow.pipelines.trips import trips
from tidemark.airflow import watch_dag

dag = watch_dag([trips], schedule=None)
