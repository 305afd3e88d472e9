"""The runtime of `Process` operators: live state of one key, its records, and the output.

The Spark engine and its in-memory twin run the same code, which depends on neither.
"""
