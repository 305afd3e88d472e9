"""Delta tables without Spark: commits, logs, durability, integrity, and rewritten files."""
