"""The promote DAG of the trips."""

from tests.airflow.pipelines.trips import trips
from tidemark.airflow import promote_dag

dag = promote_dag([trips])
