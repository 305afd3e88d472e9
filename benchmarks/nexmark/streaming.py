"""Queries of Nexmark in Structured Streaming: batches of one size, state in RocksDB, rows appended to a Delta table."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.nexmark.events import Auction, Bid, Person
from benchmarks.nexmark.queries import SIDE
from benchmarks.peers.sparks import session_with
from benchmarks.peers.streaming import TUNED

_SQL: dict[Any, str] = {int: "BIGINT", str: "STRING", datetime: "TIMESTAMP"}
_RECORDS = {"persons": Person, "auctions": Auction, "bids": Bid}
TEN = "10 seconds"


@dataclass(frozen=True)
class Streams:
    """The topics as streams.

    Attributes:
        session: the session of the query.
        bootstrap: the broker.
        batch: how many records of a topic a batch reads.
    """

    session: SparkSession
    bootstrap: str
    batch: int

    def read(self, topic: str) -> DataFrame:
        """Decoded records with the timestamp of Kafka, `arrived`, and without a watermark."""
        raw = (
            self.session.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self.bootstrap)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", self.batch)
            .load()
        )
        schema = ", ".join(f"{f.name} {_SQL[f.type]}" for f in fields(_RECORDS[topic]))
        made = raw.select(F.from_json(F.col("value").cast("string"), schema).alias("record"), "timestamp")
        return made.select("record.*", F.col("timestamp").alias("arrived"))

    def timed(self, topic: str) -> DataFrame:
        """The same, with a watermark of event time."""
        return self.read(topic).withWatermark("date_time", "0 seconds")


def q0(streams: Streams) -> DataFrame:
    """All bids."""
    return streams.read("bids").drop("arrived")


def q1(streams: Streams) -> DataFrame:
    """Bids with other prices."""
    return streams.read("bids").drop("arrived").withColumn("price", F.expr("price * 908 div 1000"))


def q2(streams: Streams) -> DataFrame:
    """Prices of some auctions."""
    return streams.read("bids").where("auction % 123 = 0").select("auction", "price")


def q3(streams: Streams) -> DataFrame:
    """Local sellers, by a join that keeps all rows."""
    persons = streams.read("persons").where("state IN ('OR', 'ID', 'CA')")
    auctions = streams.read("auctions").where("category = 10").selectExpr("seller", "id AS auction")
    return persons.join(auctions, persons.id == auctions.seller).select("name", "city", "state", "auction")


def q5(streams: Streams) -> DataFrame:
    """The auction with most bids; only one of several."""
    windows = F.window("date_time", TEN, "2 seconds")
    counts = streams.timed("bids").groupBy(windows.alias("w"), "auction").count()
    most = F.max_by("auction", "count").alias("auction")
    ends = F.window(F.window_time("w"), "2 seconds").alias("until")
    return counts.groupBy(ends).agg(F.max("count").alias("bids"), most).selectExpr("auction", "bids", "until.end")


def q7(streams: Streams) -> DataFrame:
    """The highest bid; only one of several."""
    best = F.max(F.struct("price", "auction", "bidder")).alias("best")
    found = streams.timed("bids").groupBy(F.window("date_time", TEN).alias("w")).agg(best)
    return found.selectExpr("best.auction", "best.bidder", "best.price", "w.end AS until")


def q8(streams: Streams) -> DataFrame:
    """New people who sell."""
    window = F.window("date_time", TEN)
    joined = streams.timed("persons").groupBy(window.alias("w"), "id", "name").count().drop("count")
    selling = streams.timed("auctions").groupBy(window.alias("v"), "seller").count().drop("count")
    return joined.join(selling, F.expr("id = seller AND w = v")).selectExpr("id", "name", "w.start AS since")


def q11(streams: Streams) -> DataFrame:
    """Sessions of bidders."""
    sessions = F.session_window("date_time", TEN).alias("w")
    found = streams.timed("bids").groupBy(sessions, "bidder").count()
    return found.selectExpr("bidder", "w.start", "w.end", "`count` AS bids")


def q12(streams: Streams) -> DataFrame:
    """Bids per bidder and ten seconds of arrival."""
    bids = streams.read("bids").withWatermark("arrived", "0 seconds")
    found = bids.groupBy(F.window("arrived", TEN).alias("w"), "bidder").count()
    return found.selectExpr("bidder", "w.start", "w.end", "`count` AS bids")


def q13(streams: Streams) -> DataFrame:
    """Bids with a row of the small table."""
    side = streams.session.createDataFrame([(row.key, row.value) for row in SIDE], "key BIGINT, value STRING")
    found = streams.read("bids").join(F.broadcast(side), F.expr("auction % 10 = key"))
    return found.select("auction", "bidder", "price", "value")


STREAMING: dict[str, Callable[[Streams], DataFrame]] = {
    of.__name__: of for of in (q0, q1, q2, q3, q5, q7, q8, q11, q12, q13)
}
"""Queries 4 and 6 need a function with state and timers; in Python these pass each row to another process and back."""


def run(name: str, bootstrap: str, batch: int, folder: Path) -> int:
    """Runs a query over all records that wait, and returns how many rows its table has.

    Args:
        name: the query.
        bootstrap: the broker.
        batch: how many records of a topic a batch reads.
        folder: where the checkpoint and the table go.
    """
    session = session_with(TUNED | {"spark.sql.streaming.noDataMicroBatches.enabled": "true"})
    found = STREAMING[name](Streams(session, bootstrap, batch))
    writer = found.writeStream.format("delta").outputMode("append").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).start(str(folder / "table"))
    query.awaitTermination()
    return session.read.format("delta").load(str(folder / "table")).count()
