"""Tidemark in Airflow's pages: guarded routes below `/tidemark`, a page *Checkpoints*, a tab on DAG runs."""
