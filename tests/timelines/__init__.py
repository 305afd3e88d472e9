"""A random walk over every verb on timelines, against an oracle that keeps a plain dict per timeline."""
