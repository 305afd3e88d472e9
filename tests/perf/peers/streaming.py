"""Structured Streaming with state in RocksDB: a new query per run, `Trigger.AvailableNow`, results in a Delta table.

The query itself is Java (`java/StreamingTotals.java`), because a state function in Python would cost it a process and
a copy of every row. Both ways to persist RocksDB are measured: whole snapshots, and a change log with a snapshot per
version that is uploaded when the query ends.
"""

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.perf.peers.places import COLUMNS, Place
from tests.perf.peers.sparks import session_with

Sink = Literal["append", "merge"]
_STATE = "spark.sql.streaming.stateStore"
TUNED = {
    f"{_STATE}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    f"{_STATE}.rocksdb.trackTotalNumberOfRows": "false",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.databricks.delta.snapshotPartitions": "2",
}
"""Rows are not counted, no batch without data follows, and the tables' logs are read by two tasks, as there are cores.
"""
CHANGELOG = {
    f"{_STATE}.rocksdb.changelogCheckpointing.enabled": "true",
    f"{_STATE}.minDeltasForSnapshot": "1",
    f"{_STATE}.unloadOnCommit": "true",
}


@dataclass
class StreamingPeer:
    """One query over the topic.

    Attributes:
        place: its topic and folder.
        sink: how results reach the table.
        changelog: whether RocksDB is persisted as a change log.
    """

    place: Place
    sink: Sink
    changelog: bool
    session: SparkSession = field(init=False)

    def __post_init__(self) -> None:
        self.session = session_with(TUNED | (CHANGELOG if self.changelog else {}))
        self.table = f"{self.place.folder}/table"
        if self.sink == "merge":
            columns = "key STRING, updates BIGINT, amount BIGINT, last_at TIMESTAMP, deleted BOOLEAN, changed BIGINT"
            self.session.sql(f"CREATE TABLE IF NOT EXISTS delta.`{self.table}` ({columns}) USING delta")

    def take(self) -> None:
        """One query, from the offsets of the last one to the topic's end."""
        options = {
            "bootstrap": self.place.bootstrap,
            "topic": self.place.topic,
            "table": self.table,
            "checkpoint": f"{self.place.folder}/checkpoint",
            "sink": self.sink,
        }
        spark: object = self.session._jsparkSession
        self.session._jvm.StreamingTotals.take(spark, options)

    def upkeep(self) -> None:
        """None: Spark's own maintenance runs in the background."""

    def close(self) -> None:
        """Nothing runs between two runs."""

    def rows(self) -> pa.Table:
        """The last row of each key, which is the only one where they are merged."""
        newest = f"""
            SELECT key, max_by(struct(updates, amount, last_at, deleted), changed) AS last
            FROM delta.`{self.table}` GROUP BY key
        """
        return self.session.sql(f"SELECT key, last.* FROM ({newest}) WHERE NOT last.deleted").select(*COLUMNS).toArrow()

    def savepoint(self, name: str) -> None:
        """A copy of the query's checkpoint folder, and the version of the table."""
        folder = Path(self.place.folder, "savepoints", name)
        shutil.copytree(f"{self.place.folder}/checkpoint", folder / "checkpoint")
        (folder / "table").write_text(f"delta.`{self.table}` VERSION AS OF {DeltaTable(self.table).version()}")

    def restore(self, name: str) -> None:
        """The copy comes back, and the table becomes a clone of its old version.

        Not the table itself by RESTORE: it would remember the batches that were written since, and Delta's sink would
        skip them when they come again (delta#1813).
        """
        shutil.rmtree(f"{self.place.folder}/checkpoint")
        self.table = f"{self.place.folder}/table-{name}"
        self._begin(name, self.place.folder, self.table)

    def forked(self, name: str, place: Place) -> "StreamingPeer":
        """Another query over a copy of the copy, and a clone."""
        self._begin(name, place.folder, f"{place.folder}/table")
        return StreamingPeer(place, self.sink, self.changelog)

    def _begin(self, name: str, folder: str, table: str) -> None:
        kept = Path(self.place.folder, "savepoints", name)
        shutil.copytree(kept / "checkpoint", f"{folder}/checkpoint")
        self.session.sql(f"CREATE TABLE delta.`{table}` SHALLOW CLONE {(kept / 'table').read_text()}")
