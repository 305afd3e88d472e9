"""The verbs that read sinks, as of a checkpoint."""

from typing import TYPE_CHECKING

from tidemark.errors import NotFoundError
from tidemark.model.checkpoint import Checkpoint
from tidemark.model.sinks import SinkTable
from tidemark.wiring.reads import Reads

if TYPE_CHECKING:
    import pyarrow as pa


class Outputs(Reads):
    """Reads what operators have emitted."""

    def sink_table(
        self, name: str, sink: str, *, checkpoint: int | None = None, limit: int | None = None
    ) -> "pa.Table":
        """The rows of a sink as of a checkpoint, read without Spark: emitted fields, row id, `_checkpoint`.

        Args:
            name: the pipeline.
            sink: its name; of a sink to Kafka this is the outbox.
            checkpoint: an id; the newest one without it.
            limit: only the last so many rows.

        Raises:
            NotFoundError: no such pipeline, checkpoint or sink.
            StoreError: a file of it is gone.
        """
        from tidemark.adapters.sink_reader import read_sink

        rows = read_sink(self.root, sink_of(self.checkpoint(name, checkpoint), sink))
        return rows if limit is None else rows.slice(max(0, rows.num_rows - limit))


def sink_of(checkpoint: Checkpoint, sink: str) -> SinkTable:
    """The table of a sink as of a checkpoint.

    Raises:
        NotFoundError: the checkpoint names no such sink, or one that keeps no rows.
    """
    known = {table.name: table for table in checkpoint.sinks.values()}
    if sink not in known:
        raise NotFoundError(
            f"{checkpoint.plan.name} has no sink {sink!r}", next=f"name one of: {', '.join(known) or 'none'}."
        )
    found = known[sink]
    if not found.keeps_rows and not found.handle:
        raise NotFoundError(
            f"sink {sink!r} keeps no rows: attempts send them to a topic (guarantee='at_least_once')",
            next=f"read the topic{'' if found.topic is None else ' ' + found.topic} itself.",
        )
    return found
