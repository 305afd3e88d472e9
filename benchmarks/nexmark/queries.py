"""The queries 0 to 8 and 11 to 13 of Nexmark as pipelines, each with the operator that answers it."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from benchmarks.nexmark.events import Auction, Bid, Person
from tidemark import (
    Broadcast,
    CoProcess,
    DeltaSink,
    FlatMap,
    Fold,
    IntervalJoin,
    KafkaSource,
    Pipeline,
    Process,
    Session,
    Sliding,
    Tumbling,
    Watermark,
    state,
)

NOW = Watermark(delay="0s")
SOURCES = {
    "persons": KafkaSource("persons", Person, event_time="date_time", watermark=NOW),
    "auctions": KafkaSource("auctions", Auction, event_time="date_time", watermark=NOW),
    "bids": KafkaSource("bids", Bid, event_time="date_time", watermark=NOW),
}
WINDOW, MS = timedelta(seconds=10), timedelta(milliseconds=1)


def pipeline(name: str, *operators: Any, sources: tuple[str, ...] = ("bids",), **others: Any) -> Pipeline:
    """A pipeline over some of the topics."""
    return Pipeline(name=name, sources={of: SOURCES[of] for of in sources}, operators=operators, **others)


# 0: the cost of passing bids through.
def same(bid: Bid) -> Iterator[Bid]:
    """Emits the bid."""
    yield bid


q0 = pipeline("q0", FlatMap("q0", function=same, emits=Bid, sink=DeltaSink("q0")))


# 1: prices in another currency.
def in_euros(bid: Bid) -> Iterator[Bid]:
    """Emits the bid with its price in euro cents."""
    yield Bid(bid.auction, bid.bidder, bid.price * 908 // 1000, bid.channel, bid.url, bid.date_time)


q1 = pipeline("q1", FlatMap("q1", function=in_euros, emits=Bid, sink=DeltaSink("q1")))


# 2: bids on some auctions.
@dataclass(frozen=True)
class Price:
    """A row of query 2."""

    auction: int
    price: int


def of_some(bid: Bid) -> Iterator[Price]:
    """Emits the prices of one auction in 123."""
    if bid.auction % 123 == 0:
        yield Price(bid.auction, bid.price)


q2 = pipeline("q2", FlatMap("q2", function=of_some, emits=Price, sink=DeltaSink("q2")))


# 3: who sells in three states.
@dataclass(frozen=True)
class Local:
    """A row of query 3."""

    name: str
    city: str
    state: str
    auction: int


class Seller(state.Keyed):
    """A person, and the auctions that were read before it."""

    name: str = state.value("")
    city: str = state.value("")
    lives_in: str = state.value("")
    waiting: list[int] = state.list()


def sells_here(key: int, records: Iterator[tuple[str, Any]], seller: Seller) -> Iterator[Local]:
    """Emits the auctions of a seller once the seller is known."""
    for name, record in records:
        if name == "persons" and record.state in ("OR", "ID", "CA"):
            seller.name, seller.city, seller.lives_in = record.name, record.city, record.state
        if name == "auctions" and record.category == 10:
            seller.waiting.append(record.id)
        if seller.name:
            for auction in seller.waiting:
                yield Local(seller.name, seller.city, seller.lives_in, auction)
            seller.waiting.clear()


q3 = pipeline(
    "q3",
    CoProcess(
        "q3",
        inputs=("persons", "auctions"),
        key_by={"persons": "id", "auctions": "seller"},
        state=Seller,
        function=sells_here,
        emits=Local,
        sink=DeltaSink("q3"),
    ),
    sources=("persons", "auctions"),
)


# 4 and 6: the highest bid of each auction that has expired.
@dataclass(frozen=True)
class Sold:
    """An auction with its highest bid."""

    auction: int
    category: int
    seller: int
    price: int


class Open(state.Keyed):
    """An auction until it expires, and its best price."""

    category: int = state.value(0)
    seller: int = state.value(0)
    expires: datetime | None = state.value(None)
    price: int = state.value(0)


def watch(auction: int, records: Iterator[tuple[str, Any]], kept: Open, *, timers: Any) -> None:
    """Remembers the best price. Bids may come behind the end of an auction before its timer fires."""
    for name, record in records:
        if name == "auctions":
            kept.category, kept.seller, kept.expires = record.category, record.seller, record.expires
            timers.set("expires", record.expires + MS)
        elif kept.expires is not None and record.date_time <= kept.expires:
            kept.price = max(kept.price, record.price)


def close(auction: int, name: str, at: datetime, kept: Open) -> Iterator[Sold]:
    """Emits the auction if there was a bid."""
    if kept.price:
        yield Sold(auction, kept.category, kept.seller, kept.price)
    kept.clear()


def sold(name: str) -> CoProcess:
    """The operator that closes auctions."""
    return CoProcess(
        "sold",
        inputs=("auctions", "bids"),
        key_by={"auctions": "id", "bids": "auction"},
        state=Open,
        function=watch,
        on_timer=close,
        emits=Sold,
        sink=DeltaSink(f"{name}_sold"),
    )


class Category(state.Keyed):
    """The answer to query 4."""

    price: float | None = state.mean("price")


q4 = pipeline(
    "q4", sold("q4"), Fold("q4", key_by="category", state=Category, input="sold"), sources=("auctions", "bids")
)


@dataclass(frozen=True)
class Average:
    """A row of query 6."""

    seller: int
    price: float


class LastTen(state.Keyed):
    """The last ten prices of a seller."""

    prices: list[int] = state.list()


def last_ten(seller: int, rows: Iterator[Sold], kept: LastTen) -> Iterator[Average]:
    """Emits the mean of the last ten prices for each auction."""
    for row in rows:
        kept.prices = [*kept.prices, row.price][-10:]
        yield Average(seller, sum(kept.prices) / len(kept.prices))


q6 = pipeline(
    "q6",
    sold("q6"),
    Process(
        "q6",
        key_by="seller",
        state=LastTen,
        function=last_ten,
        input="sold",
        order="event_time",
        emits=Average,
        sink=DeltaSink("q6"),
    ),
    sources=("auctions", "bids"),
)


# 5: the auctions with most bids in the last ten seconds, every two seconds.
class Bids(state.Keyed):
    """How many bids."""

    bids: int = state.count()


@dataclass(frozen=True)
class Hot:
    """A row of query 5."""

    auction: int
    bids: int
    until: datetime


class Hottest(state.Keyed):
    """The auctions with most bids in a window that is complete when its time comes."""

    bids: int = state.value(0)
    auctions: list[int] = state.list()


def hottest(until: datetime, rows: Iterator[Any], best: Hottest, *, timers: Any) -> None:
    """Keeps the auctions with most bids."""
    for row in rows:
        if row.bids > best.bids:
            best.bids, best.auctions = row.bids, []
        if row.bids == best.bids:
            best.auctions.append(row.auction)
    timers.set("complete", until)


def name_hottest(until: datetime, name: str, at: datetime, best: Hottest) -> Iterator[Hot]:
    """Emits them, and forgets the window."""
    for auction in best.auctions:
        yield Hot(auction, best.bids, until)
    best.clear()


q5 = pipeline(
    "q5",
    Fold("counts", key_by="auction", state=Bids, window=Sliding(WINDOW, every="2s")),
    Process(
        "q5",
        key_by="window_end",
        state=Hottest,
        function=hottest,
        on_timer=name_hottest,
        input="counts",
        emits=Hot,
        sink=DeltaSink("q5"),
    ),
)


# 7: the highest bids of each ten seconds.
class Highest(state.Keyed):
    """The highest price."""

    price: int | None = state.max("price")


@dataclass(frozen=True)
class HighestBid:
    """A row of query 7."""

    auction: int
    bidder: int
    price: int | None
    until: datetime


q7 = pipeline(
    "q7",
    Fold("highest", key_by=(), state=Highest, window=Tumbling(WINDOW)),
    FlatMap(
        "priced",
        input="highest",
        function=lambda row: [HighestBid(0, 0, row.price, row.window_end)],
        emits=HighestBid,
    ),
    IntervalJoin(
        "q7",
        left="priced",
        right="bids",
        key_by={"priced": "price", "bids": "price"},
        within=(MS - WINDOW, "0s"),
        select={"auction": "bids.auction", "bidder": "bids.bidder", "price": "priced.price", "until": "priced.until"},
        emits=HighestBid,
        sink=DeltaSink("q7"),
    ),
)


# 8: people who joined and sold in the same ten seconds.
class Joined(state.Keyed):
    """People who joined."""

    people: int = state.count()


@dataclass(frozen=True)
class NewSeller:
    """A row of query 8."""

    id: int
    name: str
    since: datetime


q8 = pipeline(
    "q8",
    Fold("joined", key_by=("id", "name"), state=Joined, input="persons", window=Tumbling(WINDOW)),
    Fold("selling", key_by="seller", state=Joined, input="auctions", window=Tumbling(WINDOW)),
    IntervalJoin(
        "q8",
        left="joined",
        right="selling",
        key_by={"joined": "id", "selling": "seller"},
        within=("0s", "0s"),
        select={"id": "joined.id", "name": "joined.name", "since": "joined.window_start"},
        emits=NewSeller,
        sink=DeltaSink("q8"),
    ),
    sources=("persons", "auctions"),
)

# 11: the sessions of a bidder.
q11 = pipeline("q11", Fold("q11", key_by="bidder", state=Bids, window=Session(WINDOW), sink=DeltaSink("q11")))

# 12: bids in ten seconds of arrival, which is the timestamp that Kafka gives a record.
q12 = Pipeline(
    name="q12",
    source=KafkaSource("bids", Bid, watermark=NOW),
    operators=[Fold("q12", key_by="bidder", state=Bids, window=Tumbling(WINDOW), sink=DeltaSink("q12"))],
)


# 13: bids with what a small table says of their auction.
@dataclass(frozen=True)
class Side:
    """A row of the small table."""

    key: int
    value: str


@dataclass(frozen=True)
class Enriched:
    """A row of query 13."""

    auction: int
    bidder: int
    price: int
    value: str


SIDE = [Side(n, f"value {n}") for n in range(10)]


class Nothing(state.Keyed):
    """How many bids were looked up."""

    bids: int = state.value(0)


def enrich(auction: int, bids: Iterator[Bid], seen: Nothing, broadcast: Any) -> Iterator[Enriched]:
    """Emits each bid with the row of the small table."""
    value = broadcast["side"][auction % len(SIDE)].value
    for bid in bids:
        seen.bids += 1
        yield Enriched(bid.auction, bid.bidder, bid.price, value)


q13 = pipeline(
    "q13",
    Process("q13", key_by="auction", state=Nothing, function=enrich, emits=Enriched, sink=DeltaSink("q13")),
    broadcast=[Broadcast("side", KafkaSource("side", Side), key_by="key")],
)

QUERIES = {of.name: of for of in (q0, q1, q2, q3, q4, q5, q6, q7, q8, q11, q12, q13)}
