"""Sorted Parquet of an attempt, and the statistics that its commit relies on."""
