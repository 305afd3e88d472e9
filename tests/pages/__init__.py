"""What the pages in Airflow answer, over warehouses on disk: no Airflow, no Spark."""
