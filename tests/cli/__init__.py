"""The command line as people and scripts use it: over a real broker, Spark and Delta; JSON, exit codes, help."""
