"""Writes the sorted Parquet files of an attempt, with the statistics that its commit uses."""
