"""Parts of the engine that need no Spark."""
