"""The erase DAG of the trips."""

from tests.airflow.pipelines.trips import trips
from tidemark.airflow import erase_dag

dag = erase_dag([trips])
