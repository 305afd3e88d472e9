"""The protocol over ports alone, in rooms that import downwards: recovery, checkpoints, plans, records."""
