"""The verb that compacts; filled in when the engine's compaction is there."""

from tidemark.wiring.core import Core


class Compactions(Core):
    """Compacts completed checkpoints."""
