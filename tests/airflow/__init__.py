"""Tests of the DAGs: their shape, and real DAG runs by `dag.test()` over the memory twins of Kafka and Spark."""
