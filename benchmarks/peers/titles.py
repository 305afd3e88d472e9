"""The display names of the systems, by kind; this module imports nothing, so that rendering a page needs no Spark."""

WHOLE = "tidemark-whole"
"""Tidemark's backfill of a topic that holds the whole history."""
TITLES = {
    "tidemark": "Tidemark, own driver",
    "tidemark-server": "Tidemark, Connect server",
    WHOLE: "Tidemark, the year in the topic",
    "append": "Structured Streaming, append",
    "append-tuned": "Structured Streaming, append, with Tidemark's JVM options",
    "append-log": "Structured Streaming, append, change log",
    "merge": "Structured Streaming, MERGE",
    "merge-log": "Structured Streaming, MERGE, change log",
    "python-state": "Structured Streaming, transformWithState in Python",
    "delta-rs": "delta-rs MERGE",
    "delta-merge": "Delta MERGE, copy-on-write",
    "delta-vectors": "Delta MERGE, deletion vectors",
    "overwrite": "full overwrite",
    "flink": "Flink, resident",
}
