"""Changes of the rows of a table as Debezium writes them, and what the table holds after them."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tidemark import Broadcast, Fold, KafkaSource, Pipeline, Process, Watermark, formats, state
from tidemark.formats import debezium
from tidemark.testing import Record

Row = Mapping[str, Any]
PARTITIONS = 2


@dataclass(frozen=True)
class OldItem:
    """The columns of interest of the row before."""

    id: int
    cents: int | None = None


@dataclass(frozen=True)
class Item:
    """A row after a change."""

    id: int
    region: str
    name: str | None
    cents: int
    note: str | None = None
    op: str = debezium.op()
    at: datetime = debezium.ts()
    before: OldItem | None = debezium.before()


class Copy(state.Keyed):
    """The row as it is, and its first name."""

    name: str | None = state.latest("name")
    cents: int = state.latest("cents")
    note: str | None = state.latest("note")
    op: str = state.latest("op")
    first: str | None = state.first("name")


class Spent(state.Keyed):
    """What a Process makes of changes."""

    cents: int = state.value(0)


def add_differences(region: str, changes: Iterable[Item], kept: Spent) -> None:
    """Sums the cents of the rows of a region, by what each change adds."""
    for change in changes:
        kept.cents += change.cents - ((change.before.cents or 0) if change.before else 0)


def pipeline(topic: str = "shop.public.items", *, inner: formats.RecordFormat | None = None) -> Pipeline:
    """Folds with and without deletes, and a Process."""
    its_format = formats.Debezium() if inner is None else formats.Debezium(inner=inner)
    return Pipeline(
        name="items",
        source=KafkaSource(topic, Item, event_time="at", format=its_format, watermark=Watermark(delay="1s")),
        operators=[
            Fold("copy", key_by=("id", "region"), state=Copy, deletes=True),
            Fold("seen", key_by=("region", "id"), state=Copy),
            Fold("ids", key_by="id", state=Copy, deletes=True),
            Process("spent", key_by="region", state=Spent, function=add_differences),
        ],
        max_dead_letters=1.0,
    )


def with_broadcast(topic: str = "shop.public.items") -> Pipeline:
    """The table as a broadcast state, for a Process of another topic that does not matter."""
    items = KafkaSource(topic, Item, format=formats.Debezium())
    return Pipeline(
        name="looked_up",
        source=KafkaSource("orders", OldItem),
        operators=[Process("nothing", key_by="id", state=Spent, function=_ignore)],
        broadcast=[Broadcast("items", items, key_by=("id", "region"))],
        max_dead_letters=1.0,
    )


def _ignore(_: int, __: Iterable[OldItem], ___: Spent) -> None:
    """Does nothing."""


def key_of(row: Row) -> tuple[int, str]:
    """The primary key."""
    return row["id"], row["region"]


@dataclass
class Table:
    """A table, and the messages of all its changes.

    Attributes:
        rows: the rows by primary key.
        sent: the messages (key, value), in order.
        firsts: the name that each row had when it was inserted.
        ever: the last version of every row, deleted ones too.
        wraps: whether the converter writes `schema` and `payload`.
    """

    rows: dict[tuple[int, str], Row] = field(default_factory=dict)
    sent: list[tuple[bytes | None, bytes | None]] = field(default_factory=list)
    firsts: dict[tuple[int, str], Any] = field(default_factory=dict)
    ever: dict[tuple[int, str], tuple[Row, str]] = field(default_factory=dict)
    ops: dict[tuple[int, str], str] = field(default_factory=dict)
    wraps: bool = False

    def upsert(self, row: Row, *, op: str = "", ts_ms: int = 0) -> None:
        """Inserts or updates a row."""
        key, before = key_of(row), self.rows.get(key_of(row))
        op = op or ("c" if before is None else "u")
        if before is None:
            self.firsts[key] = row["name"]
        self.rows[key], self.ops[key] = row, op
        self.ever[key] = row, op
        self._send(key, event(op, before, row, ts_ms))

    def delete(self, key: tuple[int, str], *, ts_ms: int = 0, tombstone: bool = True) -> None:
        """Deletes a row, with the tombstone that follows by default."""
        before = self.rows.pop(key, None)
        self.firsts.pop(key, None)
        self.ops.pop(key, None)
        if before is not None:
            self._send(key, event("d", before, None, ts_ms))
            if tombstone:
                self._send(key, None)

    def truncate(self) -> None:
        """Writes the event of a truncate; the rows stay, because nothing names them."""
        self.sent.append((None, self._wrapped(event("t", None, None, 0))))

    def _send(self, key: tuple[int, str], found: Mapping[str, Any] | None) -> None:
        named = self._wrapped({"id": key[0], "region": key[1]})
        self.sent.append((named, None if found is None else self._wrapped(found)))

    def _wrapped(self, body: Mapping[str, Any]) -> bytes:
        schema = {"type": "struct", "fields": [], "optional": False, "name": "shop.public.items.Envelope"}
        return json.dumps({"schema": schema, "payload": body} if self.wraps else body).encode()


def event(op: str, before: Row | None, after: Row | None, ts_ms: int) -> dict[str, Any]:
    """A change event, with the members that the connector for PostgreSQL writes."""
    source = {
        "version": "3.0.0.Final", "connector": "postgresql", "name": "shop", "ts_ms": ts_ms,
        "snapshot": "true" if op == "r" else "false", "db": "shop", "sequence": '[null,"24023128"]',
        "ts_us": ts_ms * 1000, "schema": "public", "table": "items", "txId": 555, "lsn": 24023128, "xmin": None,
    }  # fmt: skip
    rows = {} if op == "t" else {"before": before, "after": after}
    return {**rows, "source": source, "op": op, "ts_ms": ts_ms + 40, "transaction": None}


def records(sent: Sequence[tuple[bytes | None, bytes | None]]) -> list[Record]:
    """The messages, those of a key in one partition."""
    return [Record(value=value, key=key, partition=sum(_plain(key)) % PARTITIONS) for key, value in sent]


def compacted(sent: Sequence[tuple[bytes | None, bytes | None]]) -> list[tuple[bytes | None, bytes | None]]:
    """What a compaction of the topic leaves: of each key the last message."""
    last = {_plain(key): n for n, (key, _) in enumerate(sent)}
    return [found for n, found in enumerate(sent) if found[0] is None or last[_plain(found[0])] == n]


def _plain(key: bytes | None) -> bytes:
    found = json.loads(key or b"{}")
    return json.dumps(found.get("payload", found)).encode()


def random_changes(choices: Iterable[tuple[int, int, int]], table: Table | None = None) -> Table:
    """Makes changes of numbers: what to do, with which row, and its new values.

    >>> random_changes([(0, 1, 5), (6, 1, 0)]).rows
    {}
    """
    made = table or Table()
    for n, (what, which, value) in enumerate(choices):
        key = (which // 2, "ab"[which % 2])
        row = {"id": key[0], "region": key[1], "name": None if value % 5 == 0 else f"n{value}", "cents": value}
        if n > 5:
            row["note"] = "later"  # a column that is added in the middle
        ts_ms = 1_000 * value  # clocks that go back
        match what % 10:
            case 6 | 7:
                made.delete(key, ts_ms=ts_ms, tombstone=what % 10 == 6)
            case 8:
                made.wraps = not made.wraps
            case 9 if value % 3 == 0:
                made.truncate()
            case _:
                made.upsert(row, op="r" if key not in made.rows and value % 4 == 0 else "", ts_ms=ts_ms)
    return made
