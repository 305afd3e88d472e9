"""Process operators: the context, its twins, its failures, its sinks."""
