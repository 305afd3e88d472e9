"""The portable subset of SQL: expressions that mean the same in Spark and in DuckDB, and aggregates."""
