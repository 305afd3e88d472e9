"""Several sources and broadcast states under one barrier, against plain dicts: any cut, any crash, any arrival."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark import Broadcast, DeltaTable, Fold, KafkaSource, Pipeline, Process, state
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.core.offsets import TopicPartition
from tidemark.testing import BARRIER, CRASH, Barrier, Crash, Overwrite, Script, replay

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)


@dataclass(frozen=True)
class Sale:
    """A record of the first source."""

    item: str
    cents: int
    at: datetime


@dataclass(frozen=True)
class Delivery:
    """A record of the second source: another type, another event time, another key type."""

    shelf: int
    pieces: int
    arrived: datetime


@dataclass(frozen=True)
class Rule:
    """A row of the broadcast topic."""

    item: str
    rate: int | None


@dataclass(frozen=True)
class Owner:
    """A row of the foreign table."""

    item: str
    name: str


class Sold(state.Keyed):
    """Of one item."""

    n: int = state.count()
    cents: int | None = state.sum("cents")


class ShelfStock(state.Keyed):
    """Of one shelf."""

    pieces: int | None = state.sum("pieces")


class Seen(state.Keyed):
    """What the function was shown when it saw a record: the rule's rate and the owner."""

    rates: list[int | None] = state.list()
    owners: list[str] = state.list()


def look(
    item: str, sales: Iterator[Sale], remembered: Seen, broadcast: Mapping[str, Mapping[Any, Any]]
) -> Iterator[None]:
    """Notes what is broadcast, once per record."""
    for _ in sales:
        rule, owner = broadcast["rules"].get(item), broadcast["owners"].get(item)
        remembered.rates.append(-1 if rule is None else rule.rate)
        remembered.owners.append("" if owner is None else owner.name)
    return iter(())


SHOP = Pipeline(
    name="shop",
    sources={
        "sales": KafkaSource("sales", Sale, event_time="at"),
        "deliveries": KafkaSource(("lorries", "vans"), Delivery, event_time="arrived"),
    },
    operators=[
        Fold("sold", key_by="item", state=Sold, input="sales"),
        Process("seen", key_by="item", state=Seen, function=look, input="sales"),
        Fold("shelves", key_by="shelf", state=ShelfStock, input="deliveries"),
    ],
    broadcast=[
        Broadcast("rules", KafkaSource("rules", Rule), key_by="item"),
        Broadcast("owners", DeltaTable("/owners", Owner), key_by="item"),
    ],
    max_dead_letters=1.0,
)

ITEMS = st.sampled_from(["a", "b", "ü"])
TIMES = st.integers(-50, 50).map(lambda n: NOON + timedelta(minutes=n))
SALES = st.builds(Sale, item=ITEMS, cents=st.integers(0, 99), at=TIMES)
DELIVERIES = st.builds(Delivery, shelf=st.integers(0, 2), pieces=st.integers(0, 9), arrived=TIMES)
RULES = st.builds(Rule, item=ITEMS, rate=st.integers(0, 5)).map(lambda r: ("rules", r, r.item))
DELETES = ITEMS.map(lambda item: ("rules", None, item))
BAD = st.sampled_from([("sales", b"{"), ("deliveries", None), ("rules", b"[]", "a")])
RECORDS = st.lists(SALES | DELIVERIES | RULES | DELETES | BAD, max_size=10)
OWNERS = st.dictionaries(ITEMS, st.sampled_from(["Ada", "Bo"]), max_size=3)
STEPS = ["ids", "queries", "plan", "attempt", "read", "gate", "fsync", "seal", "publish"]
CRASHES = st.builds(CRASH.at, st.sampled_from(STEPS), st.sampled_from(["before", "after"]))


@dataclass(frozen=True)
class Cut:
    """One checkpoint: what arrives before its barrier, and the new content of the table, if any."""

    records: list[object]
    owners: dict[str, str] | None
    crash: Crash | None


CUTS = st.lists(st.builds(Cut, records=RECORDS, owners=st.none() | OWNERS, crash=st.none() | CRASHES), max_size=5)


def script(cuts: list[Cut]) -> Script:
    """The cuts as `replay` takes them; the table is there from the beginning."""
    parts: list[Iterable[object] | Barrier | Crash | Overwrite] = [Overwrite("/owners", [Owner("a", "first")])]
    for cut in cuts:
        if cut.owners is not None:
            parts.append(Overwrite("/owners", [Owner(*pair) for pair in cut.owners.items()]))
        parts += [cut.records, *([cut.crash] if cut.crash else []), BARRIER]
    return parts


class Shop:
    """The brute-force model: one pass over all records, nothing of the product in it."""

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.fed = Counter[str]()
        self.marks: dict[str, int] = {}
        self.sold = defaultdict[str, list[int]](list)
        self.shelves = Counter[int]()
        self.seen = defaultdict[str, list[tuple[int | None, str]]](list)
        self.rules: dict[str, int | None] = {}
        self.owners = {"a": "first"}
        self.version = 0

    def checkpoint(self, cut: Cut) -> None:
        """Applies one cut: the broadcast rows first."""
        if cut.owners is not None:
            self.owners, self.version = dict(cut.owners), self.version + 1
        for record in cut.records:
            if isinstance(record, tuple) and record[0] == "rules" and not isinstance(record[1], bytes):
                if record[1] is None:
                    self.rules.pop(record[2], None)
                else:
                    self.rules[record[2]] = record[1].rate
        for record in cut.records:
            self._source_record(record)

    def _source_record(self, record: object) -> None:
        name = record[0] if isinstance(record, tuple) else "sales" if isinstance(record, Sale) else "deliveries"
        place = self.fed[name]
        self.fed[name] += name != "rules"
        if isinstance(record, Sale):
            self._mark(f"sales-{place % self.partitions}", record.at)
            self.sold[record.item].append(record.cents)
            self.seen[record.item].append((self.rules.get(record.item, -1), self.owners.get(record.item, "")))
        if isinstance(record, Delivery):
            topic, partition = divmod(place % (2 * self.partitions), self.partitions)
            self._mark(f"{('lorries', 'vans')[topic]}-{partition}", record.arrived)
            self.shelves[record.shelf] += record.pieces

    def _mark(self, place: str, at: datetime) -> None:
        ms = int(at.timestamp() * 1000)
        self.marks[place] = max(ms, self.marks.get(place, ms))


@settings(max_examples=200, deadline=None)
@given(CUTS, st.integers(1, 3))
def test_every_state_is_that_of_one_barrier_over_all_inputs(cuts: list[Cut], partitions: int) -> None:
    done = replay(SHOP, script(cuts), partitions=partitions)
    assert len(done.checkpoints) == len(cuts)
    shop, parent = Shop(partitions), None
    for cut, checkpoint in zip(cuts, done.checkpoints, strict=True):
        shop.checkpoint(cut)
        _check_facts(checkpoint, shop, cut)
        assert checkpoint.plan.ranges.breaks_from(None if parent is None else parent.plan.ranges) == []
        parent = checkpoint
        assert {k: (s.n, s.cents) for k, s in done.state("sold", checkpoint).items()} == {
            item: (len(cents), sum(cents)) for item, cents in shop.sold.items()
        }
        assert {k: s.pieces for k, s in done.state("shelves", checkpoint).items()} == shop.shelves
        assert done.state("rules", checkpoint) == {k: Rule(k, rate) for k, rate in shop.rules.items()}
        assert done.state("owners", checkpoint) == {k: Owner(k, name) for k, name in shop.owners.items()}
        seen = done.state("seen", checkpoint)
        # The order of a key's records is that of partitions, so what they were shown is compared as a bag.
        assert {k: Counter(zip(s.rates, s.owners, strict=True)) for k, s in seen.items()} == {
            item: Counter(shown) for item, shown in shop.seen.items()
        }


def _check_facts(checkpoint: Checkpoint, shop: Shop, cut: Cut) -> None:
    facts, plan = checkpoint.sealed.facts, checkpoint.plan
    assert facts.records == len(cut.records)
    assert facts.watermarks == {TopicPartition.parse(place): ms for place, ms in shop.marks.items()}
    assert facts.watermark_ms == max(shop.marks.values(), default=None)
    names = Counter(
        r[0] if isinstance(r, tuple) else "sales" if isinstance(r, Sale) else "deliveries" for r in cut.records
    )
    read = {a.uid: a.read for a in checkpoint.sealed.acks if a.uid != "owners"}
    assert read == {
        "sold": names["sales"],
        "seen": names["sales"],
        "shelves": names["deliveries"],
        "rules": names["rules"],
    }
    assert plan.broadcast_versions == {"owners": shop.version}
    # It is copied by the first checkpoint, and then by those whose version is another one.
    first = plan.parent is None
    assert plan.copies == (("owners",) if first or cut.owners is not None else ())


def test_a_rule_counts_from_its_barrier_on() -> None:
    sale = Sale("a", 1, NOON)
    done = replay(
        SHOP,
        [
            Overwrite("/owners", []),
            [sale, ("rules", Rule("a", 1), "a")], BARRIER,
            [sale, ("rules", Rule("a", 2), "a"), ("rules", Rule("a", 3), "a")], BARRIER,
            [sale, ("rules", None, "a")], BARRIER,
            [sale, ("rules", Rule("a", None), "a")], BARRIER,
        ],
    )  # fmt: skip
    assert done.state("seen")["a"].rates == [1, 3, -1, None]
    assert done.state("rules") == {"a": Rule("a", None)}


@pytest.mark.parametrize("step", ["attempt", "read", "fold.owners", "runs.owners", "process.seen", "seal", "publish"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_retry_copies_the_version_that_its_plan_froze(step: str, moment: str) -> None:
    owners, sales = Overwrite("/owners", [Owner("a", "planned")]), [Sale("a", 1, NOON)]
    done = replay(SHOP, [owners, sales, CRASH.at(step, moment), BARRIER])
    assert done.crashes == 1
    assert done.state("seen")["a"].owners == ["planned"]
    [checkpoint] = done.checkpoints
    assert checkpoint.plan.broadcast_versions == {"owners": 0}
