"""Reads a batch in Spark: the planned offsets, strictly decoded and counted once, with broadcast states."""
