"""`make demo`: the flights of 2013 through Airflow, a bug, its correction by a backfill, and every row checked."""
