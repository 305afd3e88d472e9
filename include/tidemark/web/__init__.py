"""The pages in Airflow and the REST interface below `/tidemark`: functions of a context that build their answers.

They only read. The answers are those of `tidemark.answers`. Manifests are the source of truth, so the answers are the
same after Airflow's database was lost.
"""
