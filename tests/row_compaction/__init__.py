"""Compaction, expiry and erasure of sinks and dead letters."""
