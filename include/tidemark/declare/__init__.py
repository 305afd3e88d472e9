"""What authors declare: pipelines, operators, sources, operator state, retention; and their fingerprint."""
