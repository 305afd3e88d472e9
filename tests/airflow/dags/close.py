"""The close DAG of the trips."""

from tests.airflow.pipelines.trips import trips
from tidemark.airflow import close_dag

dag = close_dag([trips])
