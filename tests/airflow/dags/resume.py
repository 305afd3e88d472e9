"""The resume DAG of the trips."""

from tests.airflow.pipelines.trips import trips
from tidemark.airflow import resume_dag

dag = resume_dag([trips])
