"""Helpers that tests of several folders share, with one vocabulary.

`memory`: a pipeline over the parts of the twin; `bank` is the one of the coordinator's tests. `disk`: the same over a
real store and real Delta tables, with `disk_context` and `cli` for what commands see of it. `spark`: one script through
the twin and through Spark. `airflow`, `airflow_disk`: what outlives the tasks of a DAG run. `kafka`, `kafka_broker`,
`s3`, `s3_proxy`, `openlineage`, `opentelemetry`, `statsd`: services. `processes`, `killed_pipeline`: commands in
processes that are killed; `crashes`: the same without processes. `simulation`, `interleaving`, `stepped_store`:
schedules of processes that share a store. `trips`: the pipeline that the pages show.

A helper that one folder uses stays in it, under a name that no other helper has. `tests/test_architecture.py` lists
names with two meanings.
"""
