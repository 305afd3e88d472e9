"""The rows of a sink at a checkpoint, read without Spark."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidemark.context import Context
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.operations import queries, sinks

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class SinkRows:
    """The rows of a sink as of one checkpoint, without those that no manifest names. Nothing is read before you ask.

    A row has the emitted fields, its id (`_uid`, and the record that it was emitted for: `_topic`, `_partition`,
    `_offset`, `_path`), and `_checkpoint`, the id of the checkpoint that emitted it. Get one from
    `PipelineHistory.sink`.

    Attributes:
        pipeline: the pipeline's name.
        name: the sink.
        found: the checkpoint's manifest.

    Every method raises StoreError if a file of the sink is gone.

    >>> w["flights"].sink("knock_on_delays")
    <sink knock_on_delays at chk-3>
    """

    context: Context
    pipeline: str
    name: str
    found: Checkpoint

    def to_arrow(self) -> "pa.Table":
        """All rows as an Arrow table, in order of checkpoint and position.

        >>> w["flights"].sink("knock_on_delays", at="chk-2").to_arrow().num_rows
        1
        """
        return sinks.read_sink(self.context, self.pipeline, self.name, checkpoint=self.found.id)

    def to_pandas(self) -> "pd.DataFrame":
        """All rows as a pandas DataFrame, in the same order; pandas must be installed.

        >>> w["flights"].sink("knock_on_delays").to_pandas()["departure_delay"].tolist()
        [45.0, 31.0]
        """
        frame: pd.DataFrame = self.to_arrow().to_pandas()
        return frame

    def tail(self, limit: int = 20) -> list[dict[str, Any]]:
        """The last rows. Reads the whole sink.

        >>> [row] = w["flights"].sink("knock_on_delays").tail(1)
        >>> row["tail_number"], row["departure_delay"], row["_topic"], row["_offset"], row["_checkpoint"]
        ('N24211', 31.0, 'flights', 6, 3)
        """
        rows = sinks.read_sink(self.context, self.pipeline, self.name, checkpoint=self.found.id, limit=limit)
        found: list[dict[str, Any]] = rows.to_pylist(maps_as_pydicts="strict")
        return found

    def duckdb(self) -> "duckdb.DuckDBPyConnection":
        """A DuckDB connection of your own, with the rows as the view `<name>`. Reads the whole sink.

        >>> connection = w["flights"].sink("knock_on_delays").duckdb()
        >>> connection.sql("select max(departure_delay) from knock_on_delays").fetchall()
        [(45.0,)]
        """
        return queries.connect_rows(self.name, self.to_arrow())

    def __repr__(self) -> str:
        return f"<sink {self.name} at {self.found.plan.name}>"
