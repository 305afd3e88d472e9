"""End to end: the whole stack on a home of its own, a small topic, DAG runs through Airflow's REST API."""
