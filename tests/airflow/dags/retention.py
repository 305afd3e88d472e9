"""Retention of the trips, without a grace time; one that asks first; and one of three pipelines."""

from tests.airflow.more_pipelines.rails import trains, trams
from tests.airflow.pipelines.trips import trips
from tidemark.airflow import retention_dag

dag = retention_dag([trips], grace="0")
asking = retention_dag([trips], dag_id="asking", schedule=None, approve=True)
several = retention_dag([trips, trams, trains], dag_id="several", schedule=None, grace="0", approve=True)
