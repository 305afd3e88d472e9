"""The runtime of `Process` operators: live state of one key, its records, what comes of them.

The Spark engine and its in-memory twin run the same code here; it knows neither.
"""
