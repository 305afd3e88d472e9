"""Savepoints with other states: a patch, and a transform."""
