"""How stored state may change: compaction of its levels, evolution of its schema and of sinks."""
