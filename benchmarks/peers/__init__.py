"""The same updates through Tidemark and through what a user would take instead; see `__main__`.

A peer is tuned as its documentation says, runs as its own query per checkpoint as a scheduler starts it, and its state
is held against an oracle row by row: a run with a wrong row is void.
"""
