"""How long a checkpoint takes end to end through Airflow; see `tests.perf.airflow_latency`."""
