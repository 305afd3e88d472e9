"""The redrive DAG of the trips."""

from tests.airflow.pipelines.trips import trips
from tidemark.airflow import redrive_dag

dag = redrive_dag([trips])
