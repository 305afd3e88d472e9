"""The protocol, over ports alone; its packages import downwards: recovery, checkpoints, plans, records."""
