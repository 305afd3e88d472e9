"""Structured Streaming with `transformWithState` in Python: the same query as `streaming`, its state function aside.

The state is in RocksDB. The function runs in Spark's Python workers, which ask the JVM for the state of each key and
send it back over a socket.
"""

from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle, TimerValues

from benchmarks.peers.streaming import StreamingPeer

STATE = "updates BIGINT, amount BIGINT, last_micros BIGINT"
RESULT = f"key STRING, {STATE}, deleted BOOLEAN, changed BIGINT"


class Totals(StatefulProcessor):
    """Keeps count, sum and maximum of a key; a record without an amount deletes it."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declares the state."""
        self.total = handle.getValueState("total", STATE)

    def handleInputRows(  # noqa: N802  (Spark's name)
        self,
        key: Any,
        rows: Iterator[Any],
        timerValues: TimerValues,  # noqa: ARG002, N803
    ) -> Iterator[Any]:
        """Applies the records of a key in the order of their offsets, and returns its new row."""
        kept = self.total.get() if self.total.exists() else None
        updates, amount, last = (0, 0, 0) if kept is None else tuple(kept)
        offset = 0
        for row in sorted(rows, key=lambda row: row.offset):
            offset = row.offset
            if row.amount is None:
                updates, amount, last = 0, 0, 0
                continue
            updates, amount, last = updates + 1, amount + row.amount, max(last, row.micros)
        if updates:
            self.total.update((updates, amount, last))
        else:
            self.total.clear()
        yield Row(
            key=key[0],
            updates=updates,
            amount=amount,
            last_micros=last,
            deleted=not updates,
            changed=offset,
        )

    def close(self) -> None:
        """Does nothing."""


class PythonStatePeer(StreamingPeer):
    """One query over the topic, whose results are appended to a Delta table."""

    def take(self) -> None:
        """Runs one query, from the end offsets of the previous query to the topic's end."""
        options = {
            "kafka.bootstrap.servers": self.place.bootstrap,
            "subscribe": self.place.topic,
            "startingOffsets": "earliest",
            "kafka.fetch.max.wait.ms": "1",
            "kafka.max.poll.records": "50000",
            "kafka.max.partition.fetch.bytes": str(8 * 2**20),
        }
        records = self.session.readStream.format("kafka").options(**options).load()
        parsed = "from_json(CAST(value AS STRING), 'amount BIGINT, at TIMESTAMP') AS found"
        changes = records.selectExpr("CAST(key AS STRING) AS key", "offset", parsed).selectExpr(
            "key", "offset", "found.amount", "unix_micros(found.at) AS micros"
        )
        rows = changes.groupBy("key").transformWithState(Totals(), RESULT, "Append", "None")
        columns = ("key", "updates", "amount", "timestamp_micros(last_micros) AS last_at", "deleted", "changed")
        query = rows.selectExpr(*columns).writeStream.format("delta")
        started = query.option("checkpointLocation", self.checkpoint).trigger(availableNow=True).start(self.table)
        started.awaitTermination()
