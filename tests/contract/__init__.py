"""One suite per port, run against the real implementation and its in-memory twin."""
