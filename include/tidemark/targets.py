"""What comes out of state: the targets of `Fold(publish=[...])` and `Process(publish=[...])`.

    from tidemark.targets import DeltaMirror

    Fold("aircraft", key_by="tail_number", state=Aircraft, publish=[DeltaMirror("/lake/aircraft")])

Each target says what its readers see: a plain Delta table of the current state or of its changes, a table of
PostgreSQL, a compacted topic.
"""

from tidemark.declare.publications import DeltaChangelog, DeltaMirror, JdbcUpsert, KafkaUpsert

__all__ = ["DeltaChangelog", "DeltaMirror", "JdbcUpsert", "KafkaUpsert"]
