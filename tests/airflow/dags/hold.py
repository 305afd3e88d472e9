"""The hold DAG of the trips."""

from tests.airflow.pipelines.trips import trips
from tidemark.airflow import hold_dag

dag = hold_dag([trips])
