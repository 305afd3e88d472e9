"""The harbours: one DAG is started by records that wait, the other by the checkpoints of the first."""

from datetime import timedelta

from tests.airflow.pipelines.harbours import arrivals, berths
from tidemark.airflow import KafkaLag, checkpoint_dag, checkpoints_of

dag = checkpoint_dag(
    arrivals, schedule=KafkaLag(min_records=5, max_wait=timedelta(seconds=20), poll=timedelta(seconds=1))
)
behind = checkpoint_dag(berths, schedule=checkpoints_of("arrivals"))
