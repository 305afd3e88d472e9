"""The answers of the pages in Airflow and of the REST interface below `/tidemark` (K1–K8): functions of a context.

They only read, and answer JSON values, under Flink's field names where the meaning is Flink's. Manifests are the truth,
so the answers stay the same when Airflow's database is lost.
"""
