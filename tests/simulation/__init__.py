"""A seeded simulation of the checkpoint protocol: the real code over memory, every operation a point of choice."""
