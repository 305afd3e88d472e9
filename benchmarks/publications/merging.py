"""The peers: the same changes by Delta's MERGE in Spark, from changed rows or from a stream of records.

Both tables have deletion vectors, and begin with the same rows, which are written untimed.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from benchmarks.peers.batch import merge_of_records
from benchmarks.peers.places import COLUMNS
from benchmarks.peers.sparks import session_with
from benchmarks.publications.step_costs import StepCost

Row = dict[str, Any]
CODEC = {"spark.sql.parquet.compression.codec": "zstd", "spark.databricks.delta.snapshotPartitions": "2"}
"""The compression of a mirror, and two tasks for reading the logs of Delta tables, one per core."""
STREAM = {
    "kafka.fetch.max.wait.ms": "1",
    "kafka.max.poll.records": "50000",
    "kafka.max.partition.fetch.bytes": str(8 * 2**20),
}


@dataclass
class MergedTable:
    """A Delta table with the state, changed by MERGE.

    Attributes:
        folder: the folder of this peer.
    """

    folder: Path
    session: SparkSession = field(init=False)

    def __post_init__(self) -> None:
        self.session = session_with(CODEC)

    @property
    def table(self) -> str:
        """The path of the table."""
        return str(self.folder / "table")

    def load(self, rows: str) -> None:
        """Creates the table with the rows of a Parquet file."""
        self.session.sql(
            f"CREATE TABLE delta.`{self.table}` (key STRING, updates BIGINT, amount BIGINT, last_at TIMESTAMP)"
            " USING delta TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
        )
        self.session.read.parquet(rows).write.format("delta").mode("append").save(self.table)

    def merge(self, changed: str) -> Row:
        """Merges a Parquet file of changed rows, with the keys that are gone among them."""

        def act() -> None:
            self.session.read.parquet(changed).createOrReplaceTempView("changed")
            self.session.sql(
                f"MERGE INTO delta.`{self.table}` t USING changed s ON t.key = s.key"
                " WHEN MATCHED AND s.gone THEN DELETE"
                " WHEN MATCHED THEN UPDATE SET updates = s.updates, amount = s.amount, last_at = s.last_at"
                " WHEN NOT MATCHED AND NOT s.gone THEN INSERT (key, updates, amount, last_at)"
                " VALUES (s.key, s.updates, s.amount, s.last_at)"
            )

        return StepCost.of(act, str(self.folder)).row

    def optimize(self) -> Row:
        """Compacts the table, the upkeep that a merged table needs from time to time."""
        optimize = f"OPTIMIZE delta.`{self.table}`"
        return StepCost.of(lambda: self.session.sql(optimize).collect(), str(self.folder)).row

    def rows(self) -> pa.Table:
        """Reads the table with Spark, which supports deletion vectors."""
        return self.session.read.format("delta").load(self.table).select(*COLUMNS).toArrow()


@dataclass
class StreamedTable(MergedTable):
    """The same table, changed by a streaming query whose `foreachBatch` merges a batch of records.

    The documentation of Structured Streaming shows this way. A batch that is repeated after a crash counts twice, which
    favours this peer: protection against that would cost more.

    Attributes:
        bootstrap: the address of the broker.
        topic: the topic.
        starts: the offsets where the first query begins, by partition.
    """

    bootstrap: str
    topic: str
    starts: dict[str, int] = field(default_factory=dict)

    def take(self) -> Row:
        """Runs a query with `Trigger.AvailableNow`, from the end of the previous query to the topic's end."""
        return StepCost.of(self._query, str(self.folder)).row

    def _query(self) -> None:
        def merge(batch: DataFrame, _: int) -> None:
            batch.createOrReplaceTempView("records")
            batch.sparkSession.sql(merge_of_records(self.table))

        options = {
            "kafka.bootstrap.servers": self.bootstrap,
            "subscribe": self.topic,
            "startingOffsets": json.dumps({self.topic: self.starts}),
            **STREAM,
        }
        query = self.session.readStream.format("kafka").options(**options).load().writeStream.foreachBatch(merge)
        running = query.option("checkpointLocation", str(self.folder / "checkpoint")).trigger(availableNow=True).start()
        running.awaitTermination()
