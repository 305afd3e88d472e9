"""Nexmark on Tidemark: events of an auction house, its queries as pipelines, and the same in DuckDB as the oracle."""
