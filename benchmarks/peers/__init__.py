"""Compares Tidemark with the systems that you could use instead, over the same updates; see `__main__`.

Each peer is tuned as its documentation recommends and runs once per checkpoint, as a scheduler would start it. Its
state is compared with an oracle row by row; a single wrong row voids the run.
"""
