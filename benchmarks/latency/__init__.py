"""End-to-end latency of a checkpoint through Airflow; see `benchmarks.airflow_latency`."""
