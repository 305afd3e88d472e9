"""Pages of benchmarks, held to their data; and what only a large state shows."""
