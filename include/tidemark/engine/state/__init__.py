"""Stored state in Spark: its files, its resolution, its compaction."""
