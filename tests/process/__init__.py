"""Process operators: the runtime, its twins, its failures, its sinks."""
