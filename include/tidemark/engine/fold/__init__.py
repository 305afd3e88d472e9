"""Fold operators in Spark: merge operands per key, limits, and the key with an overflow."""
