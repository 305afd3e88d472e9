"""Retention, every day: releases old checkpoints and deletes unused files."""

from pipelines.flights import flights
from tidemark.airflow import retention_dag

dag = retention_dag([flights])
