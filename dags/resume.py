"""Resumes on demand: a form that continues a stopped pipeline."""

from pipelines.flights import flights
from tidemark.airflow import resume_dag

dag = resume_dag([flights])
