"""Readers without Spark: states, sinks, dead letters, checkpoints, differences and SQL."""
