"""`make demo`: processes the flights of 2013 with Airflow, corrects a bug with a backfill, and checks every row."""
