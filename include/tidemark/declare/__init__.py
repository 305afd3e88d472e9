"""What authors declare: pipelines, operators, sources, operator state and retention; and their fingerprint."""
