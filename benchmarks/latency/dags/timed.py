"""The DAGs that `benchmarks.airflow_latency` triggers: they have no schedule and do not restart failed runs."""

from benchmarks.latency.pipelines.timed import gated, timed
from tidemark.airflow import checkpoint_dag

plain_dag = checkpoint_dag(timed, schedule=None, restart="none")
gated_dag = checkpoint_dag(gated, schedule=None, restart="none")
