"""Sends metrics and lineage events to external receivers, within a time limit and without ever failing a run."""
