"""The answers of DuckDB to the queries of Nexmark, over all events that a checkpoint and those before it have read.

It shares nothing with the pipelines but the records. A window or an auction counts once its end is not after the
frontier: the least, over the topics and partitions of the query, of the greatest event time.
"""

from collections.abc import Sequence
from dataclasses import asdict, fields
from datetime import datetime
from typing import Any

import duckdb
import pyarrow as pa

from benchmarks.nexmark.events import Auction, Bid, Event, Person
from benchmarks.nexmark.queries import QUERIES, SIDE

Read = tuple[str, int, Event]
"""Topic, partition and event."""
_TYPES: dict[Any, pa.DataType] = {int: pa.int64(), str: pa.string(), datetime: pa.timestamp("us", "UTC")}
_TABLES = {"persons": Person, "auctions": Auction, "bids": Bid}

_SOLD = """
    SELECT a.id AS auction, a.category, a.seller, max(b.price) AS price, any_value(a.expires) AS expires
    FROM auctions a JOIN bids b ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires
    WHERE a.expires + INTERVAL 1 MILLISECOND <= getvariable('frontier')
    GROUP BY ALL
"""
_TEN = "time_bucket(INTERVAL 10 SECOND, date_time)"

SQL = {
    "q0": "SELECT auction, bidder, price, channel, url, date_time FROM bids",
    "q1": "SELECT auction, bidder, price * 908 // 1000, channel, url, date_time FROM bids",
    "q2": "SELECT auction, price FROM bids WHERE auction % 123 = 0",
    "q3": """
        SELECT p.name, p.city, p.state, a.id FROM auctions a JOIN persons p ON a.seller = p.id
        WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')
    """,
    "q4": f"SELECT category, avg(price) FROM ({_SOLD}) GROUP BY category",
    "q5": """
        WITH starts AS (
            SELECT auction, time_bucket(INTERVAL 2 SECOND, date_time) - to_seconds(2 * n) AS start
            FROM bids, range(5) AS r(n)
        ), counts AS (
            SELECT auction, start + INTERVAL 10 SECOND AS until, count(*) AS bids FROM starts GROUP BY ALL
        )
        SELECT auction, bids, until FROM counts WHERE until <= getvariable('frontier')
        QUALIFY bids = max(bids) OVER (PARTITION BY until)
    """,
    "q6": f"""
        SELECT seller, avg(price) OVER (PARTITION BY seller ORDER BY expires ROWS 9 PRECEDING) FROM ({_SOLD})
    """,
    "q7": f"""
        WITH placed AS (SELECT *, {_TEN} + INTERVAL 10 SECOND AS until FROM bids)
        SELECT auction, bidder, price, until FROM placed WHERE until <= getvariable('frontier')
        QUALIFY price = max(price) OVER (PARTITION BY until)
    """,
    "q8": f"""
        SELECT DISTINCT p.id, p.name, p.since
        FROM (SELECT *, {_TEN} AS since FROM persons) p
        JOIN (SELECT *, {_TEN} AS since FROM auctions) a ON p.id = a.seller AND p.since = a.since
        WHERE p.since + INTERVAL 10 SECOND <= getvariable('frontier')
    """,
    "q11": """
        WITH gaps AS (
            SELECT bidder, date_time,
                   CASE WHEN date_time - lag(date_time) OVER w < INTERVAL 10 SECOND THEN 0 ELSE 1 END AS is_new
            FROM bids WINDOW w AS (PARTITION BY bidder ORDER BY date_time)
        ), numbered AS (
            SELECT *, sum(is_new) OVER (PARTITION BY bidder ORDER BY date_time RANGE UNBOUNDED PRECEDING) AS session
            FROM gaps
        )
        SELECT bidder, min(date_time), max(date_time) + INTERVAL 10 SECOND AS until, count(*)
        FROM numbered GROUP BY bidder, session
        HAVING until <= getvariable('frontier')
    """,
    "q12": f"""
        SELECT bidder, {_TEN} AS since, since + INTERVAL 10 SECOND AS until, count(*) FROM bids GROUP BY bidder, since
        HAVING until <= getvariable('frontier')
    """,
    "q13": "SELECT auction, bidder, price, side.value FROM bids JOIN side ON bids.auction % 10 = side.key",
}  # fmt: skip


def answers(read: Sequence[Read]) -> dict[str, list[tuple[Any, ...]]]:
    """Returns the rows of each query, sorted.

    Args:
        read: the events so far.
    """
    found = {}
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name, cls in _TABLES.items():
            rows = [{"partition": partition, **asdict(event)} for topic, partition, event in read if topic == name]
            schema = pa.schema([("partition", pa.int64()), *((f.name, _TYPES[f.type]) for f in fields(cls))])
            connection.register(name, pa.Table.from_pylist(rows, schema))
        connection.register("side", pa.Table.from_pylist([asdict(row) for row in SIDE]))
        for name, text in SQL.items():
            topics = [topic for source in QUERIES[name].sources.values() for topic in source.names]
            newest = (f"SELECT partition, max(date_time) AS newest FROM {t} GROUP BY partition" for t in topics)  # noqa: S608
            parts = " UNION ALL ".join(newest)
            connection.execute(f"SET VARIABLE frontier = (SELECT min(newest) FROM ({parts}))")  # noqa: S608
            found[name] = sorted(connection.execute(text).fetchall())
    return found
