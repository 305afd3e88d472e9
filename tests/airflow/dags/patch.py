"""Patches of the trips."""

from tests.airflow.pipelines.trips import trips
from tidemark.airflow import patch_dag

dag = patch_dag([trips])
