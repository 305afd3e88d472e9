"""Every port in dicts: the twins that tests, `tidemark.testing.replay` and the simulation run on."""

from tidemark.testing.twin.clock import ManualClock, SequentialIds
from tidemark.testing.twin.compute import MemoryBatch, MemoryCompute
from tidemark.testing.twin.feed import Feed
from tidemark.testing.twin.foreign import MemoryForeignTables
from tidemark.testing.twin.log import MemoryLog
from tidemark.testing.twin.observing import MemoryLineage, MemoryMetrics
from tidemark.testing.twin.sender import MemorySender
from tidemark.testing.twin.store import Fault, FaultyStore, MemoryStore
from tidemark.testing.twin.tables import MemoryTables

__all__ = [
    "Fault",
    "FaultyStore",
    "Feed",
    "ManualClock",
    "MemoryBatch",
    "MemoryCompute",
    "MemoryForeignTables",
    "MemoryLineage",
    "MemoryLog",
    "MemoryMetrics",
    "MemorySender",
    "MemoryStore",
    "MemoryTables",
    "SequentialIds",
]
