"""The pipeline of the browser tests, on demand, with every DAG that a button of the pages triggers."""

from tests.airflow.pipelines.parcels import parcels
from tidemark import Retention
from tidemark.airflow import backfill_dag, checkpoint_dag, fork_dag, restore_dag, retention_dag, savepoint_dag

dag = checkpoint_dag(parcels, schedule=None, retention=Retention.keep_last(1))
savepoint = savepoint_dag([parcels])
restore = restore_dag([parcels])
fork = fork_dag([parcels])
backfill = backfill_dag([parcels])
retention = retention_dag([parcels], schedule=None)
