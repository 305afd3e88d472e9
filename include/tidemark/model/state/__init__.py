"""What may become of stored state: compaction of its levels, evolution of its schema and of sinks."""
