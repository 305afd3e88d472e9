"""Plain Spark batches over a Delta table that holds the state: MERGE into the table, or overwrite all of it.

A batch reads the range from the end offsets of the previous batch to the topic's end, folds it by key, and changes the
table. The offsets are written to a file next to the table after the commit. A production job would need a safer way, so
this favours the peer.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from benchmarks.needed import delta_files
from benchmarks.peers.places import COLUMNS, PARTITIONS, Place
from benchmarks.peers.sparks import keep_since, session_with, vacuum

Change = Literal["merge", "merge with deletion vectors", "overwrite"]
_FOLD = """
SELECT key, count(amount) AS updates, sum(amount) AS amount, max(at) AS last_at, any_value(cut) IS NOT NULL AS cleared
FROM (
    SELECT *, max(CASE WHEN value IS NULL THEN offset END) OVER (PARTITION BY key) AS cut
    FROM (SELECT CAST(key AS STRING) AS key, offset, value,
                 inline(array(from_json(CAST(value AS STRING), 'amount BIGINT, at TIMESTAMP')))
          FROM records)
)
WHERE cut IS NULL OR offset >= cut
GROUP BY key
"""
"""A tombstone counts as a record without an amount, so that a key that ends deleted still has a row."""
_ADDED = {
    "updates": "CASE WHEN s.cleared THEN s.updates ELSE coalesce(t.updates, 0) + coalesce(s.updates, 0) END",
    "amount": "CASE WHEN s.cleared THEN s.amount ELSE coalesce(t.amount, 0) + coalesce(s.amount, 0) END",
    "last_at": "CASE WHEN s.cleared THEN s.last_at ELSE greatest(t.last_at, s.last_at) END",
}
"""The new values of a row, from the table's row `t` and the batch's row `s`, either of which may be missing."""


@dataclass(frozen=True)
class Mark:
    """A point to which a table can be restored.

    Attributes:
        version: the version of the table.
        offsets: the offsets where the next batch begins, as the file stores them.
        at: the time of the point, in seconds since 1970.
    """

    version: int
    offsets: str
    at: float


@dataclass
class BatchPeer:
    """One table, changed once per run.

    Attributes:
        place: the topic and folder of the peer.
        change: how a batch changes the table.
    """

    place: Place
    change: Change
    session: SparkSession = field(init=False)
    least: int = field(init=False, default=1)

    def __post_init__(self) -> None:
        self.session = session_with({"spark.databricks.delta.snapshotPartitions": "2"})
        self.table = f"{self.place.folder}/table"
        self.offsets = Path(self.place.folder, "offsets.json")
        vectors = "true" if self.change == "merge with deletion vectors" else "false"
        self.session.sql(
            f"CREATE TABLE IF NOT EXISTS delta.`{self.table}`"
            " (key STRING, updates BIGINT, amount BIGINT, last_at TIMESTAMP) USING delta"
            f" TBLPROPERTIES ('delta.enableDeletionVectors' = '{vectors}')"
        )

    def take(self) -> None:
        """Processes one batch, unless the topic has no new records."""
        ends = ends_of(self.place)
        if self.offsets.exists() and json.loads(self.offsets.read_text()) == ends:
            return
        self._records(ends).createOrReplaceTempView("records")
        if self.change == "overwrite":
            self._overwrite()
        else:
            self.session.sql(merge_of_records(self.table))
        self.offsets.write_text(json.dumps(ends))

    def upkeep(self) -> None:
        """Does nothing: the table is left as the batch wrote it."""

    def close(self) -> None:
        """Does nothing: no process or query runs between two batches."""

    def rows(self) -> pa.Table:
        """Reads the table with Spark, which supports deletion vectors."""
        return self.session.read.format("delta").load(self.table).select(*COLUMNS).toArrow()

    def savepoint(self, name: str) -> None:
        """Stores the version of the table and the offsets."""
        kept = {"version": DeltaTable(self.table).version(), "offsets": self.offsets.read_text()}
        Path(self.place.folder, f"savepoint-{name}.json").write_text(json.dumps(kept))

    def restore(self, name: str) -> None:
        """Restores the table with Delta's RESTORE, and the offsets."""
        kept = self._kept(name)
        self.session.sql(f"RESTORE TABLE delta.`{self.table}` TO VERSION AS OF {kept['version']}")
        self.offsets.write_text(kept["offsets"])

    def forked(self, name: str, place: Place) -> "BatchPeer":
        """Makes a shallow clone of the table and copies the offsets."""
        kept = self._kept(name)
        source = f"delta.`{self.table}` VERSION AS OF {kept['version']}"
        self.session.sql(f"CREATE TABLE delta.`{place.folder}/table` SHALLOW CLONE {source}")
        Path(place.folder, "offsets.json").write_text(kept["offsets"])
        return BatchPeer(place, self.change)

    def mark(self) -> "Mark":
        """Returns the version of the table, the offsets and the current time."""
        return Mark(DeltaTable(self.table).version(), self.offsets.read_text(), time.time())

    def needed(self, marks: Sequence["Mark"]) -> dict[Path, str]:
        """Returns the files of the marked versions of the table."""
        return dict.fromkeys(delta_files(Path(self.table), [mark.version for mark in marks]), "state")

    def keep(self, marks: Sequence["Mark"]) -> None:
        """Sets the retention of the table to reach back to the oldest mark."""
        keep_since(self.session, self.table, marks[0].at)

    def drop(self, marks: Sequence["Mark"]) -> None:
        """Runs VACUUM."""
        vacuum(self.session, self.table)

    def back_to(self, mark: "Mark") -> None:
        """Restores the table with Delta's RESTORE, and the offsets."""
        self.session.sql(f"RESTORE TABLE delta.`{self.table}` TO VERSION AS OF {mark.version}")
        self.offsets.write_text(mark.offsets)

    def _kept(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(Path(self.place.folder, f"savepoint-{name}.json").read_text())
        return found

    def _overwrite(self) -> None:
        values = ", ".join(f"{value} AS {name}" for name, value in _ADDED.items())
        rows = self.session.sql(
            f"SELECT coalesce(t.key, s.key) AS key, {values}"
            f" FROM delta.`{self.table}` t FULL OUTER JOIN ({_FOLD}) s ON t.key = s.key"
        )
        rows.where("updates > 0").write.format("delta").mode("overwrite").save(self.table)

    def _records(self, ends: dict[str, int]) -> DataFrame:
        before = {str(p): 0 for p in range(PARTITIONS)}
        starts = json.loads(self.offsets.read_text()) if self.offsets.exists() else before
        return records_between(self.session, self.place, starts, ends)


def merge_of_records(table: str) -> str:
    """The MERGE that folds the view `records`, with the columns of Spark's Kafka source, into a table."""
    update = ", ".join(f"t.{name} = {value}" for name, value in _ADDED.items())
    return (
        f"MERGE INTO delta.`{table}` t USING ({_FOLD}) s ON t.key = s.key"
        " WHEN MATCHED AND s.cleared AND s.updates = 0 THEN DELETE"
        f" WHEN MATCHED THEN UPDATE SET {update}"
        " WHEN NOT MATCHED AND s.updates > 0 THEN INSERT (key, updates, amount, last_at)"
        " VALUES (s.key, s.updates, s.amount, s.last_at)"
    )


def records_between(session: SparkSession, place: Place, starts: dict[str, int], ends: dict[str, int]) -> DataFrame:
    """Reads the records of a range, which is given by its offsets per partition."""
    options = {
        "kafka.bootstrap.servers": place.bootstrap,
        "assign": json.dumps({place.topic: list(range(PARTITIONS))}),
        "startingOffsets": json.dumps({place.topic: starts}),
        "endingOffsets": json.dumps({place.topic: ends}),
        "kafka.fetch.max.wait.ms": "1",
        "kafka.max.poll.records": "50000",
        "kafka.max.partition.fetch.bytes": str(8 * 2**20),
    }
    return session.read.format("kafka").options(**options).load()


def ends_of(place: Place) -> dict[str, int]:
    """The current end offset of every partition of a topic, by partition number."""
    admin = AdminClient({"bootstrap.servers": place.bootstrap})
    latest = {TopicPartition(place.topic, p): OffsetSpec.latest() for p in range(PARTITIONS)}
    return {str(tp.partition): found.result(30).offset for tp, found in admin.list_offsets(latest).items()}
