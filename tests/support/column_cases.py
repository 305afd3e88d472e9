"""A pipeline with every kind of operator, and the dependencies between its columns that a changed record shows.

A record is changed in one field, the pipeline runs again in memory, and what differs depends on the field. Nothing here
knows how the product computes lineage.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

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
    Tumbling,
    Watermark,
    state,
)
from tidemark.targets import DeltaMirror
from tidemark.testing import BARRIER, Replayed, replay

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)


@dataclass(frozen=True)
class Place:
    """Where an order is sent: a nested field."""

    city: str
    zone: int


@dataclass(frozen=True)
class Order:
    """A record of the first source."""

    id: str
    customer: str | None
    shop: str
    cents: int
    note: str
    place: Place
    at: datetime


@dataclass(frozen=True)
class Payment:
    """A record of the second source."""

    order_id: str
    paid: int
    method: str
    paid_at: datetime


@dataclass(frozen=True)
class Customer:
    """A row of the broadcast state."""

    name: str
    country: str
    points: int


class Shop(state.Keyed):
    """Most kinds of state of a fold."""

    orders: int = state.count()
    cents: int | None = state.sum("cents")
    mean: float | None = state.mean("cents")
    dearest: int | None = state.max("cents")
    last_note: str | None = state.latest("note")
    first_buyer: str | None = state.first("customer")
    best_note: str | None = state.max_by("note", by="cents")
    cities: list[str] = state.distinct("place.city")
    zones: int | None = state.reduce("sum(place.zone * 2)")


class Country(state.Keyed):
    """Over joined rows."""

    orders: int = state.count()
    cents: int | None = state.sum("cents")
    points: int | None = state.latest("customers.points")


class Hour(state.Keyed):
    """Over windows."""

    orders: int = state.count()
    cents: int | None = state.sum("cents")


class Recent(state.Keyed):
    """Expires by the watermark."""

    orders: int | None = state.count(ttl=timedelta(minutes=90))


@dataclass(frozen=True)
class Big:
    """An order of the first output."""

    shop: str
    cents: int


@dataclass(frozen=True)
class Small:
    """An order of the second output."""

    id: str
    city: str


def split(order: Order) -> Iterator[Big | Small]:
    """Divides orders by their amount."""
    yield Big(order.shop, order.cents) if order.cents > 60 else Small(order.id, order.place.city)


class Sum(state.Keyed):
    """Over emitted rows."""

    n: int = state.count()
    cents: int | None = state.sum("cents")


class Number(state.Keyed):
    """Over emitted rows."""

    n: int = state.count()


class Visits(state.Keyed):
    """The state of two processes."""

    visits: int = state.value(0)
    last: str = state.value("")


@dataclass(frozen=True)
class Loyal:
    """A row of a process that looks up a broadcast state."""

    customer: str
    previous: str
    country: str | None
    visit: int


def find_loyal(key: str, orders: Iterable[Order], seen: Visits, broadcast: Mapping[str, Mapping[Any, Any]]) -> Any:
    """Yields every further order of a customer; uses the shop, the key, and the customer's country."""
    for order in orders:
        seen.visits += 1
        found = broadcast["customers"].get(key)
        if seen.visits > 1:
            yield Loyal(key, seen.last, found.country if found else None, seen.visits)
        seen.last = order.shop


@dataclass(frozen=True)
class Noted:
    """A row of a process that does not declare its fields."""

    text: str


def take_notes(key: str, orders: Iterable[Order], seen: Visits) -> Any:
    """Yields notes."""
    for order in orders:
        seen.visits += 1
        seen.last = order.note
        yield Noted(f"{order.note}/{seen.visits}")


@dataclass(frozen=True)
class Paid:
    """A pair."""

    order: str
    shop: str
    paid: int | None


class Open(state.Keyed):
    """The state of a process with two inputs."""

    cents: int = state.value(0)


@dataclass(frozen=True)
class Settled:
    """An order that is paid."""

    order: str
    method: str


def settle(key: str, records: Iterable[tuple[str, Any]], left: Open) -> Any:
    """Yields the last payment of an order that is paid."""
    for name, record in records:
        left.cents += record.cents if name == "orders" else -record.paid
        if name == "payments" and left.cents <= 0:
            yield Settled(key, record.method)


PIPELINE = Pipeline(
    name="market",
    sources={
        "orders": KafkaSource("orders", Order, event_time="at", watermark=Watermark(delay="10m")),
        "payments": KafkaSource("payments", Payment, event_time="paid_at", watermark=Watermark(delay="10m")),
    },
    broadcast=[Broadcast("customers", KafkaSource("customers", Customer), key_by="name")],
    operators=[
        Fold(
            "shops", input="orders", key_by="shop", where="cents > 0", state=Shop, publish=[DeltaMirror("/lake/shops")]
        ),
        Fold(
            "countries",
            input="orders",
            join={"customers": "customer"},
            key_by={"country": "upper(customers.country)"},
            state=Country,
        ),
        Fold(
            "hours",
            input="orders",
            key_by="shop",
            state=Hour,
            window=Tumbling("1h"),
            sink=DeltaSink("hourly"),
            late=DeltaSink("late_orders"),
        ),
        Fold("recent", input="orders", key_by="shop", state=Recent),
        FlatMap(
            "split",
            input="orders",
            function=split,
            emits={"big": Big, "small": Small},
            sinks={"big": DeltaSink("big"), "small": DeltaSink("small")},
            reads={"shop": ["shop"], "cents": [], "id": ["id"], "city": ["place.city"], "*": ["cents"]},
        ),
        Fold("big_shops", input="split", key_by="shop", state=Sum),
        Fold("all_small", input="split.small", key_by=(), state=Number),
        Process(
            "loyal",
            input="orders",
            key_by="customer",
            where="cents < 1000",
            state=Visits,
            function=find_loyal,
            emits=Loyal,
            sink=DeltaSink("loyal"),
            reads={
                "visits": [], "visit": [], "last": ["shop"], "previous": ["shop"], "customer": ["customer"],
                "country": ["customers.country"],
            },
        ),
        Process(
            "notes",
            input="orders",
            key_by="shop",
            state=Visits,
            function=take_notes,
            emits=Noted,
            sink=DeltaSink("notes"),
        ),
        IntervalJoin(
            "paid",
            left="orders",
            right="payments",
            key_by={"orders": "id", "payments": "order_id"},
            within=("0m", "2h"),
            how="left",
            select={"order": "orders.id", "shop": "orders.shop", "paid": "payments.paid"},
            emits=Paid,
            sink=DeltaSink("paid"),
        ),
        CoProcess(
            "settled",
            inputs=("orders", "payments"),
            key_by={"orders": "id", "payments": "order_id"},
            state=Open,
            function=settle,
            emits=Settled,
            sink=DeltaSink("settled"),
            reads={
                "cents": ["orders.cents", "payments.paid"], "order": ["orders.id"],
                "method": ["payments.method", "orders.cents", "payments.paid"],
            },
        ),
    ],
    max_dead_letters=1.0,
)  # fmt: skip


def order(n: int, customer: str | None, shop: str, cents: int, minutes: int) -> Order:
    """An order some minutes after noon."""
    place = Place("Ulm" if n % 2 else "Bonn", n % 3)
    return Order(f"o{n}", customer, shop, cents, f"note {n}", place, NOON + timedelta(minutes=minutes))


def payment(n: int, cents: int, minutes: int) -> Payment:
    """A payment of an order, some minutes after noon."""
    return Payment(f"o{n}", cents, "card" if n % 2 else "cash", NOON + timedelta(minutes=minutes))


Record = Order | Payment | Customer
PARTS: tuple[tuple[Record, ...], ...] = (
    (
        Customer("ann", "ch", 3),
        Customer("bob", "ch", 5),
        order(1, "ann", "s1", 50, 0),
        order(2, "bob", "s1", 90, 10),
        order(3, "ann", "s2", 70, 20),
        payment(1, 50, 15),
    ),
    (
        Customer("cy", "it", 7),
        order(4, "cy", "s2", 0, 70),
        order(5, "bob", "s1", 90, 100),
        order(6, "ann", "s3", 40, 160),
        payment(2, 90, 65),
        payment(5, 30, 150),
    ),
    (
        order(7, "bob", "s3", 65, 300),
        payment(7, 65, 310),
        order(8, "bob", "s1", 20, 70),
        order(9, "ann", "s3", 65, 305),
    ),
)
"""Records of three checkpoints; the last one is late for windows."""
OTHERS: Mapping[tuple[type, str], Sequence[Any]] = {
    (Order, "id"): ["o1", "o9"],
    (Order, "customer"): ["ann", None],
    (Order, "shop"): ["s1", "s4"],
    (Order, "cents"): [-5, 45, 75, 2000],
    (Order, "note"): ["another"],
    (Order, "place.city"): ["Jena"],
    (Order, "place.zone"): [9],
    (Order, "at"): [NOON + timedelta(minutes=m) for m in (-90, 61, 250)],
    (Payment, "order_id"): ["o3", "o9"],
    (Payment, "paid"): [10, 500],
    (Payment, "method"): ["transfer"],
    (Payment, "paid_at"): [NOON + timedelta(minutes=m) for m in (-60, 16, 400)],
    (Customer, "name"): ["ann", "eve"],
    (Customer, "country"): ["at"],
    (Customer, "points"): [99],
}
"""Other values of each field."""
SOURCES = {Order: "orders", Payment: "payments", Customer: "customers"}


def changed(record: Record, field: str, value: Any) -> Record:
    """The record with another value in one field, at a dotted path."""
    name, _, rest = field.partition(".")
    inner = getattr(record, name)
    return replace(record, **{name: replace(inner, **{rest: value}) if rest else value})


def run(parts: Sequence[Sequence[Record]], pipeline: Pipeline = PIPELINE) -> Replayed:
    """Runs the pipeline over the records of each checkpoint."""
    return replay(pipeline, [item for part in parts for item in (part, BARRIER)])


Rows = Mapping[str, list[tuple[Any, Mapping[str, Any]]]]


def contents(done: Replayed, pipeline: Pipeline = PIPELINE) -> Rows:
    """Every state and every sink: its rows, those of states with their key."""
    found: dict[str, list[tuple[Any, Mapping[str, Any]]]] = {}
    for uid, schema in pipeline.schemas().items():
        if schema.keeps_state:
            found[f"state:{uid}"] = [*done.rows(uid).items()]
    for output, of in pipeline.outputs.items():
        if of.sink is not None:
            found[f"sink:{of.sink.name}"] = [(None, row) for row in done.emitted(output)]
    return found


def differences(before: Rows, after: Rows) -> set[str]:
    """The columns, as `state:shops.cents`, that have other values: of a key, or of all rows together."""
    found = set()
    for dataset, rows in before.items():
        others = after[dataset]
        by_key = {key: row for key, row in others if key is not None}
        names = {name for _, row in (*rows, *others) for name in row if not name.startswith("_")}
        for name in names:
            bags = [Counter(repr(row[name]) for _, row in of) for of in (rows, others)]
            pairs = ((row, by_key[key]) for key, row in rows if key in by_key)
            if bags[0] != bags[1] or any(one[name] != other[name] for one, other in pairs):
                found.add(f"{dataset}.{name}")
    return found


def observe(parts: Sequence[Sequence[Record]], pipeline: Pipeline = PIPELINE) -> set[tuple[str, str]]:
    """All pairs of a field and a column that depends on it, by changing every field of every record."""
    before, found = contents(run(parts, pipeline), pipeline), set[tuple[str, str]]()
    for p, part in enumerate(parts):
        for n, record in enumerate(part):
            for (kind, field), values in OTHERS.items():
                for value in values if isinstance(record, kind) else ():
                    other = (*part[:n], changed(record, field, value), *part[n + 1 :])
                    if other != part:
                        rows = contents(run([*parts[:p], other, *parts[p + 1 :]], pipeline), pipeline)
                        found |= {(f"{SOURCES[kind]}.{field}", column) for column in differences(before, rows)}
    return found
