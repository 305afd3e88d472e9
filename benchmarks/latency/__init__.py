"""How long a checkpoint takes end to end through Airflow; see `benchmarks.airflow_latency`."""
