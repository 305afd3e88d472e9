"""Every port in dicts: the twins that tests, `tidemark.testing.replay` and the simulation run on."""

from tidemark.adapters.memory_clock import ManualClock, SequentialIds
from tidemark.adapters.memory_compute import MemoryBatch, MemoryCompute
from tidemark.adapters.memory_feed import Feed
from tidemark.adapters.memory_foreign import MemoryForeignTables
from tidemark.adapters.memory_log import MemoryLog
from tidemark.adapters.memory_observing import MemoryLineage, MemoryMetrics
from tidemark.adapters.memory_sender import MemorySender
from tidemark.adapters.memory_store import Fault, FaultyStore, MemoryStore
from tidemark.adapters.memory_tables import MemoryTables

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
