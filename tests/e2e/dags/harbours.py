"""The harbours: a DAG that waiting records start, one behind its checkpoints, and one every ten seconds."""

from datetime import timedelta

from tests.airflow.pipelines.harbours import arrivals, berths, tides
from tidemark.airflow import KafkaLag, checkpoint_dag, checkpoints_of

dag = checkpoint_dag(
    arrivals, schedule=KafkaLag(min_records=5, max_wait=timedelta(seconds=20), poll=timedelta(seconds=1))
)
behind = checkpoint_dag(berths, schedule=checkpoints_of("arrivals"))
clock = checkpoint_dag(tides, schedule=timedelta(seconds=10), until="interval_end")
