"""Metrics and lineage events for receivers outside: bounded in time, and never a reason for a run to fail."""
