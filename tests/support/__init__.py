"""Test helpers that several folders share. Each name has one meaning.

- `memory`: a pipeline over the in-memory twins; `bank` is the one that the coordinator's tests use.
- `disk`: a pipeline over a real store and real Delta tables; `disk_context` and `cli` run commands on it.
- `spark`: runs one script through the twin and through Spark.
- `airflow`, `airflow_disk`: the log, tables and store that outlive the tasks of a DAG run.
- `kafka`, `kafka_broker`, `s3`, `s3_proxy`, `openlineage`, `opentelemetry`, `statsd`: services.
- `processes`, `killed_pipeline`: commands in processes that tests kill; `crashes` simulates this within a process.
- `simulation`, `interleaving`, `stepped_store`: schedules of processes that share a store.
- `trips`: the pipeline that the pages show.

A helper that only one folder uses stays in that folder, under a unique name. `tests/test_architecture.py` reports
names that occur twice.
"""
