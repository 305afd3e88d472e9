"""Random orders and shipments for interval joins, and what DuckDB's join says of all that were not late."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb

from tidemark import DeltaSink, FlatMap, Fold, IntervalJoin, KafkaSource, Pipeline, Tumbling, Watermark, state
from tidemark.testing import Record

START = datetime(2024, 1, 1, tzinfo=UTC)
KEYS = ("a", "b")
Case = tuple[int, int, str, int, int, bool]


@dataclass(frozen=True)
class Customer:
    """A part of an order, so that a nested field is joined by."""

    region: int


@dataclass(frozen=True)
class Order:
    """A left record."""

    number: int
    id: str | None
    customer: Customer
    at: datetime


@dataclass(frozen=True)
class Shipment:
    """A right record."""

    parcel: int
    order_id: str | None
    region: int
    notes: list[str]
    at: datetime


@dataclass(frozen=True)
class Shipped:
    """A pair, or an order alone."""

    number: int
    region: int
    parcel: int | None
    notes: list[str] | None
    ordered_at: datetime


class Totals(state.Keyed):
    """Of the pairs of a region."""

    n: int = state.count()


@dataclass(frozen=True)
class JoinRules:
    """What a case declares; times in milliseconds.

    `is_fed`: a FlatMap feeds the right side, and drops nothing.
    """

    lower: int = 0
    upper: int = 10
    how: str = "left"
    delay: int = 0
    lateness: int = 0
    is_fed: bool = False


@dataclass(frozen=True)
class Arrival:
    """A record: side, partition, number, key (None = none), region, and microseconds since the start."""

    side: str
    partition: int
    number: int
    key: str | None
    region: int
    at_us: int

    @property
    def at(self) -> datetime:
        """Its event time."""
        return START + timedelta(microseconds=self.at_us)

    @property
    def record(self) -> Record:
        """The record for a script."""
        made: Any = Order(self.number, self.key, Customer(self.region), self.at)
        if self.side == "shipments":
            made = Shipment(self.number, self.key, self.region, ["n"] * (self.number % 3), self.at)
        return Record(value=made, partition=self.partition)


def same(shipment: Shipment) -> Any:
    """Emits the shipment."""
    yield shipment


def joined_pipeline(rules: JoinRules) -> Pipeline:
    """A join, a window over its rows, and a fold of them without windows."""
    watermark = Watermark(delay=f"{rules.delay}ms")
    right = "parcels" if rules.is_fed else "shipments"
    join = IntervalJoin(
        "shipped",
        left="orders",
        right=right,
        key_by={"orders": ("id", "customer.region"), right: ("order_id", "region")},
        within=(f"{rules.lower}ms", f"{rules.upper}ms"),
        how="left" if rules.how == "left" else "inner",
        lateness=f"{rules.lateness}ms",
        select={
            "number": "orders.number",
            "region": "orders.customer.region",
            "parcel": f"{right}.parcel",
            "notes": f"{right}.notes",
            "ordered_at": "orders.at",
        },
        emits=Shipped,
        sink=DeltaSink("shipped"),
    )
    return Pipeline(
        name="shop",
        sources={
            "orders": KafkaSource("orders", Order, event_time="at", watermark=watermark),
            "shipments": KafkaSource("shipments", Shipment, event_time="at", watermark=watermark),
        },
        operators=[
            *([FlatMap("parcels", input="shipments", function=same, emits=Shipment)] if rules.is_fed else []),
            join,
            Fold("sizes", input="shipped", key_by="region", state=Totals, window=Tumbling("7ms")),
            Fold("ever", input="shipped", key_by="region", state=Totals),
        ],
        max_dead_letters=1.0,
    )


@dataclass
class JoinModel:
    """What must happen, one checkpoint after the other; times in milliseconds, by the rules of adr/0058 alone."""

    rules: JoinRules
    frontier: int | None = None
    greatest: dict[tuple[str, int], int] = field(default_factory=dict)
    watermarks: dict[str, int] = field(default_factory=dict)
    accepted: list[Arrival] = field(default_factory=list)
    late: int = 0
    unkeyed: int = 0
    read: int = 0

    def checkpoint(self, batch: Sequence[Arrival]) -> None:
        """Reads a batch; all partitions that ever had a record count."""
        self.late = self.unkeyed = 0
        self.read += len(batch)
        for arrival in batch:
            place, at = (arrival.side, arrival.partition), arrival.at_us // 1000
            self.greatest[place] = max(at, self.greatest.get(place, at))
            if arrival.key is None:
                self.unkeyed += 1
            elif self.frontier is not None and arrival.at_us < self.frontier * 1000:
                self.late += 1
            else:
                self.accepted.append(arrival)
        for side in {side for side, _ in self.greatest}:
            least = min(at for (of, _), at in self.greatest.items() if of == side) - self.rules.delay
            self.watermarks[side] = max(least, self.watermarks.get(side, least))
        if self.watermarks:
            now = min(self.watermarks.values()) - self.rules.lateness
            self.frontier = now if self.frontier is None else max(now, self.frontier)

    def expected(self) -> list[tuple[Any, ...]]:
        """Number, region, parcel, event time in microseconds of all rows so far: DuckDB's join of accepted records."""
        due = -1 if self.frontier is None else self.frontier * 1000
        with duckdb.connect() as connection:
            for name in ("orders", "shipments"):
                columns = "number BIGINT, key TEXT, region BIGINT, at_us BIGINT"
                connection.execute(f"CREATE OR REPLACE TABLE {name} ({columns})")
                rows = [(a.number, a.key, a.region, a.at_us) for a in self.accepted if a.side == name]
                if rows:
                    connection.executemany(f"INSERT INTO {name} VALUES (?, ?, ?, ?)", rows)
            wait = max(self.rules.upper, 0) * 1000
            found = connection.execute(
                f"""
                SELECT o.number, o.region, s.number,
                       CASE WHEN s.number IS NULL THEN o.at_us + {wait} ELSE greatest(o.at_us, s.at_us) END
                FROM orders o {self.rules.how} JOIN shipments s
                  ON o.key = s.key AND o.region = s.region
                 AND s.at_us - o.at_us BETWEEN {self.rules.lower * 1000} AND {self.rules.upper * 1000}
                WHERE s.number IS NOT NULL OR o.at_us + {wait} < {due}
                """  # noqa: S608  (numbers of the case)
            ).fetchall()
        return sorted(found, key=repr)

    @property
    def waiting(self) -> set[tuple[str, int]]:
        """Side and number of the rows that may still find partners."""
        keeps = {"orders": max(self.rules.upper, 0), "shipments": -self.rules.lower}
        due = None if self.frontier is None else self.frontier * 1000
        return {(a.side, a.number) for a in self.accepted if due is None or a.at_us + keeps[a.side] * 1000 >= due}


def rows_of(emitted: Sequence[Any]) -> list[tuple[Any, ...]]:
    """The rows of a sink in the form of `JoinModel.expected`; the offset must be the event time."""
    found = []
    for row in emitted:
        assert row["_topic"] == "windows/shipped"
        assert len(row["_path"]) == (1 if row["parcel"] is None else 2)
        assert row["notes"] == (None if row["parcel"] is None else ["n"] * (row["parcel"] % 3))
        found.append((row["number"], row["region"], row["parcel"], row["_offset"]))
    return found


def agree_on_pairs(model: JoinModel, emitted: Sequence[Any]) -> None:
    """Compares rows of the sink with DuckDB's join: each once, none missing."""
    expected = [(n, region, parcel, at_us // 1000 + _EPOCH_MS) for n, region, parcel, at_us in model.expected()]
    assert sorted(rows_of(emitted), key=repr) == sorted(expected, key=repr)
    ids = {(row["_topic"], row["_offset"], tuple(row["_path"])) for row in emitted}
    assert len(ids) == len(emitted), "each row has an id of its own"


_EPOCH_MS = int(START.timestamp() * 1000)


def waiting_in(rows: Sequence[Any]) -> set[tuple[str, int]]:
    """The rows of the state in the form of `JoinModel.waiting`."""
    assert all((row["left_record"] is None) != (row["right_record"] is None) for row in rows)
    found = {
        ("orders", row["left_record"]["number"]) if row["left_record"] else ("shipments", row["right_record"]["parcel"])
        for row in rows
    }
    assert len(found) == len(rows), "each record is kept once"
    return found


def random_arrivals(chance: random.Random, rules: JoinRules) -> list[list[Arrival]]:
    """Batches whose time moves forward, with records that come too late or without a key."""
    now, number, found = 0, 0, []
    for _ in range(chance.randrange(2, 7)):
        batch = []
        for _ in range(chance.choice([0, 1, 4, 8])):
            now += chance.choice([0, 0, 1, 2, 4])
            at_us = max(0, now - chance.choice([0, 0, 0, 1, 4, 12])) * 1000 + chance.choice([0, 0, 0, 1, 500, 999])
            side, key = chance.choice(["orders", "shipments"]), chance.choice([*KEYS, *KEYS, *KEYS, None])
            batch.append(Arrival(side, chance.randrange(2), number, key, chance.choice([1, 1, 2]), at_us))
            number += 1
        now += chance.choice([0, 0, rules.upper, 20])
        found.append(batch)
    return found


def random_join_rules(chance: random.Random) -> JoinRules:
    """Random rules, with bounds of every sign."""
    lower = chance.choice([-6, -3, 0, 0, 2])
    return JoinRules(
        lower=lower,
        upper=lower + chance.choice([0, 1, 4, 8]),
        how=chance.choice(["inner", "left", "left"]),
        delay=chance.choice([0, 0, 1, 3]),
        lateness=chance.choice([0, 0, 2, 9]),
        is_fed=chance.random() < 0.4,
    )
