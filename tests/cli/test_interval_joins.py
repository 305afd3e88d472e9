"""Commands over an interval join, in a warehouse on disk: reads, compactions, restores, and the refused ones."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

from tests.support.cli import Command
from tests.support.disk import DiskPipeline, ParquetFiles
from tests.support.disk_context import commands_over
from tests.support.interval_join_cases import START
from tidemark.model.core.offsets import TopicPartition
from tidemark.model.portable_sql.dialects import DUCKDB
from tidemark.operations import reads
from tidemark.readers.portable_query import duckdb_query

DECLARATION = """
from dataclasses import dataclass
from datetime import datetime

from tidemark import DeltaSink, FlatMap, IntervalJoin, KafkaSource, Pipeline, Watermark


@dataclass(frozen=True)
class Order:
    id: str | None
    at: datetime


@dataclass(frozen=True)
class Shipment:
    order_id: str
    carrier: str
    at: datetime


@dataclass(frozen=True)
class Shipped:
    id: str | None
    carrier: str | None


def refuse(row):
    raise ValueError("no")


shop = Pipeline(
    name="shop",
    sources={
        "orders": KafkaSource("orders", Order, event_time="at", watermark=Watermark()),
        "shipments": KafkaSource("shipments", Shipment, event_time="at", watermark=Watermark()),
    },
    operators=[
        IntervalJoin(
            "shipped",
            left="orders",
            right="shipments",
            key_by={"orders": "id", "shipments": "order_id"},
            within=("0m", "$hours"),
            how="left",
            lateness="$late",
            select={"id": "orders.id", "carrier": "shipments.carrier"},
            emits=Shipped,
            sink=DeltaSink("shipped"),
        ),
        $more
    ],
    max_dead_letters=1.0,
)
"""
FAILING = """
        FlatMap("checked", function=refuse, input="shipped", emits=Shipped, sink=DeltaSink("c"), on_error="dead_letter")
"""


class JoinedShop:
    """The command line over a warehouse."""

    def __init__(self, home: Path) -> None:
        self.tidemark = Command(home=home, broker="nowhere:1", spark="local[1]")
        self.declare()
        found = self.tidemark.context.pipeline("shop")
        self.disk = DiskPipeline(self.tidemark.warehouse, found, "orders", partitions=1)
        self.disk.log.create("shipments", 1)

    def declare(self, hours: str = "2h", late: str = "0s", more: str = "") -> None:
        self.tidemark.declare(DECLARATION, file="shop.py", hours=hours, late=late, more=more)

    def sell(self, *records: tuple[str | None, int] | tuple[str, int, str]) -> None:
        """Orders (id, minute) and shipments (order, minute, carrier)."""
        for key, minute, *carrier in records:
            at = START + timedelta(minutes=minute)
            made = {"order_id": key, "carrier": carrier[0]} if carrier else {"id": key}
            value = json.dumps(made | {"at": at.isoformat()}).encode()
            topic = TopicPartition("shipments" if carrier else "orders", 0)
            self.disk.log.append(topic, value, timestamp_ms=int(at.timestamp() * 1000))

    def run(self, *records: Any) -> Any:
        self.sell(*records)
        return self("run", "shop", "--json").ok().json

    def __call__(self, *words: str) -> Any:
        with commands_over(self.disk):
            return self.tidemark(*words)

    def shipped(self) -> list[tuple[Any, ...]]:
        """The rows of the sink: id and carrier."""
        newest = reads.get_checkpoint(self.tidemark.context, "shop")
        rows = ParquetFiles(str(self.tidemark.warehouse), {}).rows(newest.sinks["shipped"].handle)
        return sorted((r["id"], r["carrier"]) for r in rows)


@pytest.fixture
def line(tmp_path: Path) -> JoinedShop:
    """Three checkpoints, with the frontier at the minutes 5, 60 and 300."""
    made = JoinedShop(tmp_path)
    made.run(("a", 0), ("b", 5), ("c", 10, "north"), ("a", 10, "south"))
    made.run(("d", 60), ("b", 70, "north"), (None, 60))
    made.run(("e", 300), ("d", 200, "late for d"), ("e", 300, "east"), ("f", 1))
    return made


def waiting(line: JoinedShop, table: str = "shipped") -> list[tuple[Any, ...]]:
    query = f"SELECT id, join_side, has_partner FROM {table} ORDER BY ALL"  # noqa: S608
    return [tuple(row.values()) for row in line("state", "sql", "shop", query, "--json").ok().json]


def test_reads_show_what_waits_for_partners(line: JoinedShop) -> None:
    assert line.shipped() == [("a", "south"), ("b", "north"), ("d", None), ("e", "east")]
    assert waiting(line) == [("e", "left", True), ("e", "right", None)]
    assert waiting(line, "shipped_at(1)") == [
        ("a", "left", True),
        ("a", "right", None),
        ("b", "left", None),
        ("c", "right", None),
    ]
    letters = line("dead-letters", "list", "shop", "shipped").ok().out
    assert "null_key" in letters and "late" in letters
    shown = line("checkpoint", "show", "shop", "3").ok().out
    assert "shipped" in shown


def test_the_stored_query_shows_the_same_without_tidemark(line: JoinedShop) -> None:
    context = line.tidemark.context
    found = reads.get_checkpoint(context, "shop", 3)
    stored = reads.get_query(context, found, "shipped", DUCKDB)
    text = duckdb_query(str(line.tidemark.warehouse), found, "shipped", stored)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        rows = connection.sql(f"SELECT id, join_side, has_partner FROM ({text}) ORDER BY ALL").fetchall()  # noqa: S608
    assert rows == [("e", "left", True), ("e", "right", None)]


def test_a_compaction_keeps_marks_and_drops_what_is_over(line: JoinedShop, tmp_path: Path) -> None:
    line("compact", "shop", "--full").ok()
    line.run(("e", 301, "west"), ("g", 301))
    compacted = reads.get_checkpoint(line.tidemark.context, "shop").handles["shipped"]
    assert compacted.rows == 5, "two rows of the compaction; in the new run two rows and a mark"
    line.run(("h", 900), ("h", 900, "east"))
    assert line.shipped() == [
        ("a", "south"), ("b", "north"), ("d", None), ("e", "east"), ("e", "west"), ("g", None), ("h", "east"),
    ]  # fmt: skip
    line("verify", "shop").ok()
    line("export", "shop", "--to", str(tmp_path / "out")).ok()


def test_a_restore_keeps_the_sink_and_repeats_the_cuts(line: JoinedShop) -> None:
    before = line.shipped()
    dry = line("restore", "shop", "--checkpoint", "1").ok().out
    assert "repeats" in dry
    line("restore", "shop", "--checkpoint", "1", "--execute").ok()
    line.run(("e", 301, "west"), ("g", 301))
    assert sorted(set(line.shipped()) - set(before)) == [("e", "west")]
    assert len(line.shipped()) == len(before) + 1, "no pair twice"


def test_a_restore_takes_the_sink_back(line: JoinedShop) -> None:
    line("restore", "shop", "--checkpoint", "1", "--restore-sinks", "--execute").ok()
    assert line.shipped() == [("a", "south")]
    line.run()
    # One batch now: the frontier of minute 5 makes the order of minute 1 late as before.
    assert line.shipped() == [("a", "south"), ("b", "north"), ("d", None), ("e", "east")]


def test_other_distances_need_another_uid_and_another_lateness_does_not(line: JoinedShop) -> None:
    line.declare(late="1h")
    line.disk.pipeline = line.tidemark.context.pipeline("shop")
    line.run(("i", 301), ("i", 301, "east"))
    line.declare(hours="3h")
    line.sell(("j", 302))
    line.disk.pipeline = line.tidemark.context.pipeline("shop")
    line("run", "shop").failed(2, "shipped", "within 0 to 7200000 ms", "new uid")


def held(line: JoinedShop, text: str) -> list[str]:
    """Files of the warehouse whose rows have a text, dead letters included."""
    found = []
    for path in sorted((line.tidemark.warehouse / "shop").rglob("*.parquet")):
        if text in str(pq.read_table(path, partitioning=None).to_pylist()):
            found.append(path.relative_to(line.tidemark.warehouse).as_posix())
    return found


@pytest.mark.parametrize("block", [[], ["--block"]])
def test_an_erasure_takes_both_sides_of_a_key_its_pairs_and_its_letters(line: JoinedShop, block: list[str]) -> None:
    assert any("dead_letters" in path for path in held(line, '"f"')), "it was late"
    for key in "def":
        line("erase", "shop", "shipped", "--key", key, "--execute", "--now", *block).ok()
    assert line.shipped() == [("a", "south"), ("b", "north")]
    assert waiting(line) == [] and waiting(line, "shipped_at(1)") != []
    assert [held(line, text) for text in ('"f"', "'e'", "'d'", "late for d")] == [[]] * 4
    line("verify", "shop", "--content").ok()
    line("restore", "shop", "--checkpoint", "1", "--restore-sinks", "--execute").ok()
    line.run(("e", 301, "west"), ("e", 301), ("k", 301), ("k", 302, "west"))
    new = [] if block else [("e", "west")]
    assert line.shipped() == [("a", "south"), ("b", "north"), *new, ("k", "west")], "records that were read count never"


def test_a_letter_of_an_erased_key_is_found_although_it_has_another_member_of_the_name(tmp_path: Path) -> None:
    line = JoinedShop(tmp_path)
    line.run(("a", 60), ("b", 60, "north"))
    late = {"id": "parcel 7", "order_id": "a", "carrier": "unseen", "at": START.isoformat()}
    line.disk.log.append(TopicPartition("shipments", 0), json.dumps(late).encode(), timestamp_ms=0)
    line.run()
    assert held(line, "unseen")
    line("erase", "shop", "shipped", "--key", "a", "--execute", "--now").ok()
    assert held(line, "unseen") == []


def test_what_is_not_ready_is_refused_by_name(line: JoinedShop) -> None:
    refused = line("dead-letters", "redrive", "shop", "shipped", "--out-of-order", "--execute")
    refused.failed(2, "shipped is an interval join: a redrive of its dead letters is not supported", "backfill")
    line.declare(more=FAILING)
    line.disk.pipeline = line.tidemark.context.pipeline("shop")
    line.run(("x", 400), ("x", 400, "east"))
    assert "process_failed" in line("dead-letters", "list", "shop", "checked").ok().out
    refused = line("dead-letters", "redrive", "shop", "checked", "--out-of-order", "--execute")
    refused.failed(2, "shipped", "backfill")
