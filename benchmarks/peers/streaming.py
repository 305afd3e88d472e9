"""Structured Streaming with state in RocksDB: a new query per run, `Trigger.AvailableNow`, results in a Delta table.

The query itself is written in Java (`java/StreamingTotals.java`), because a state function in Python would add a
process and a copy of every row. Both ways to persist RocksDB are measured: full snapshots, and a change log with a
snapshot per version, which is uploaded when the query ends.
"""

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from benchmarks.needed import delta_files, rocksdb_files
from benchmarks.peers.places import COLUMNS, Place
from benchmarks.peers.sparks import keep_since, session_with, vacuum

Sink = Literal["append", "merge"]
_STATE = "spark.sql.streaming.stateStore"
TUNED = {
    f"{_STATE}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    f"{_STATE}.rocksdb.trackTotalNumberOfRows": "false",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.databricks.delta.snapshotPartitions": "2",
}
"""Rows are not counted, no batch without data follows, and two tasks read the logs of Delta tables, one per core."""
CHANGELOG = {
    f"{_STATE}.rocksdb.changelogCheckpointing.enabled": "true",
    f"{_STATE}.minDeltasForSnapshot": "1",
    f"{_STATE}.unloadOnCommit": "true",
}


@dataclass(frozen=True)
class Mark:
    """A point to which a query can be restored.

    Attributes:
        batch: the number of the batch in the query's logs; the version of the state is one higher.
        version: the version of the table.
        at: the time of the point, in seconds since 1970.
    """

    batch: int
    version: int
    at: float


@dataclass
class StreamingPeer:
    """One query over the topic.

    Attributes:
        place: the topic and folder of the peer.
        sink: how results are written to the table.
        changelog: whether RocksDB is persisted as a change log.
    """

    place: Place
    sink: Sink
    changelog: bool
    session: SparkSession = field(init=False)
    least: int = field(init=False, default=1)

    def __post_init__(self) -> None:
        self.session = session_with(TUNED | (CHANGELOG if self.changelog else {}))
        self.table = f"{self.place.folder}/table"
        self.checkpoint = f"{self.place.folder}/checkpoint"
        if self.sink == "merge":
            columns = "key STRING, updates BIGINT, amount BIGINT, last_at TIMESTAMP, deleted BOOLEAN, changed BIGINT"
            self.session.sql(f"CREATE TABLE IF NOT EXISTS delta.`{self.table}` ({columns}) USING delta")

    @property
    def _jvm_totals(self) -> Any:
        jvm = self.session._jvm
        assert jvm is not None
        return jvm.StreamingTotals

    def take(self) -> None:
        """Runs one query, from the end offsets of the previous query to the topic's end."""
        options = {
            "bootstrap": self.place.bootstrap,
            "topic": self.place.topic,
            "table": self.table,
            "checkpoint": self.checkpoint,
            "sink": self.sink,
        }
        spark: object = self.session._jsparkSession
        self._jvm_totals.take(spark, options)

    def upkeep(self) -> None:
        """Does nothing: Spark's own maintenance runs in the background."""

    def close(self) -> None:
        """Does nothing: no query runs between two runs."""

    def rows(self) -> pa.Table:
        """Reads the newest row of each key that is not deleted; a merged table has only one row per key."""
        newest = f"""
            SELECT key, max_by(struct(updates, amount, last_at, deleted), changed) AS last
            FROM delta.`{self.table}` GROUP BY key
        """
        return self.session.sql(f"SELECT key, last.* FROM ({newest}) WHERE NOT last.deleted").select(*COLUMNS).toArrow()

    def savepoint(self, name: str) -> None:
        """Copies the query's checkpoint folder and stores the version of the table."""
        folder = Path(self.place.folder, "savepoints", name)
        shutil.copytree(self.checkpoint, folder / "checkpoint")
        (folder / "table").write_text(f"delta.`{self.table}` VERSION AS OF {DeltaTable(self.table).version()}")

    def restore(self, name: str) -> None:
        """Copies the checkpoint folder back, and replaces the table by a clone of its old version.

        RESTORE would not work here: the table would remember the batches written after that version, and Delta's sink
        would skip them when they are written again (delta#1813).
        """
        shutil.rmtree(self.checkpoint)
        self.table = f"{self.place.folder}/table-{name}"
        self._begin(name, self.place.folder, self.table)

    def forked(self, name: str, place: Place) -> "StreamingPeer":
        """Returns another query with a copy of the saved checkpoint folder and a clone of the table."""
        self._begin(name, place.folder, f"{place.folder}/table")
        return StreamingPeer(place, self.sink, self.changelog)

    def mark(self) -> "Mark":
        """Returns the last batch, the version of the table and the current time."""
        batches = (int(path.name) for path in Path(self.checkpoint, "commits").iterdir() if path.name.isdigit())
        return Mark(max(batches), DeltaTable(self.table).version(), time.time())

    def needed(self, marks: Sequence["Mark"]) -> dict[Path, str]:
        """Returns the files of the state, and the files of the marked versions of the table."""
        state = rocksdb_files(Path(self.checkpoint, "state", "0"), [mark.batch + 1 for mark in marks])
        results = delta_files(Path(self.table), [mark.version for mark in marks])
        return dict.fromkeys(results, "results") | dict.fromkeys(state, "state")

    def keep(self, marks: Sequence["Mark"]) -> None:
        """Sets the retention of a merged table to reach back to the oldest mark; an appended table loses no files."""
        if self.sink == "merge":
            keep_since(self.session, self.table, marks[0].at)

    def drop(self, marks: Sequence["Mark"]) -> None:
        """Runs Spark's own purge of the query, and VACUUM on a merged table."""
        spark: object = self.session._jsparkSession
        self._jvm_totals.purge(spark, self.checkpoint, len(marks), marks[0].batch)
        if self.sink == "merge":
            vacuum(self.session, self.table)

    def back_to(self, mark: "Mark") -> None:
        """Removes later batches from the query's logs, and replaces the table by a clone of its old version."""
        spark: object = self.session._jsparkSession
        self._jvm_totals.forget(spark, self.checkpoint, mark.batch)
        clone = f"{self.place.folder}/table-of-{mark.batch}"
        source = f"delta.`{self.table}` VERSION AS OF {mark.version}"
        self.session.sql(f"CREATE TABLE delta.`{clone}` SHALLOW CLONE {source}")
        self.table = clone

    def _begin(self, name: str, folder: str, table: str) -> None:
        kept = Path(self.place.folder, "savepoints", name)
        shutil.copytree(kept / "checkpoint", f"{folder}/checkpoint")
        self.session.sql(f"CREATE TABLE delta.`{table}` SHALLOW CLONE {(kept / 'table').read_text()}")
