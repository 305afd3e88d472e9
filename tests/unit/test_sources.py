"""Broadcast states as declarations: what is refused, and what they are stored as."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from tidemark import Broadcast, DeltaTable, Fold, KafkaSource, Pipeline, TopicPattern, state
from tidemark.errors import DeclarationError
from tidemark.model.core.offsets import TopicPartition


@dataclass(frozen=True)
class Place:
    """Inside a rule."""

    city: str


@dataclass(frozen=True)
class Rule:
    """A row that is broadcast."""

    item: str
    shop: int
    rate: int
    place: Place | None = None


class Sold(state.Keyed):
    """What is remembered."""

    n: int = state.count()


RULES = KafkaSource("rules", Rule)


def shop(*broadcast: Broadcast) -> Pipeline:
    """A pipeline with broadcast states."""
    folds = [Fold("sold", key_by="item", state=Sold)]
    return Pipeline(name="shop", source=KafkaSource("sales", Rule), operators=folds, broadcast=broadcast)


@pytest.mark.parametrize(
    ("declare", "words"),
    [
        (lambda: DeltaTable("", Rule), "without a path"),
        (lambda: DeltaTable("lake/rules", Rule), "relative path"),
        (lambda: DeltaTable("/rules", int), "not a dataclass"),
        (lambda: Broadcast("rules", RULES, key_by="item", max_keys=0), "max_keys=0"),
        (lambda: Broadcast("rules", RULES, key_by="nothing"), "no such field"),
        (lambda: Broadcast("rules", RULES, key_by="place.city"), "key_by="),
        (lambda: Broadcast("rules", RULES, key_by=("item", "shop", "rate", "place")), "a struct cannot be a key"),
        (lambda: shop(Broadcast("sold", RULES, key_by="item")), "two operators"),
        (lambda: shop(Broadcast("records", RULES, key_by="item")), "a source and a uid"),
        (lambda: shop(Broadcast("rules", replace(RULES, topics=TopicPattern("s.*")), key_by="item")), "topic sales"),
    ],
)
def test_a_broadcast_state_that_makes_no_sense_is_refused(declare: Callable[[], object], words: str) -> None:
    with pytest.raises(DeclarationError, match=words):
        declare()


def test_a_broadcast_state_is_stored_as_the_latest_of_each_field_and_takes_deletes() -> None:
    schema = shop(Broadcast("rules", RULES, key_by=("item", "shop"))).schemas()["rules"]
    assert [k.name for k in schema.keys] == ["item", "shop"]
    assert [(f.name, f.kind) for f in schema.fields] == [("rate", "latest"), ("place", "latest")]
    assert schema.deletes


def test_paths_and_urls_are_places_of_tables() -> None:
    assert shop(Broadcast("rules", DeltaTable("s3://lake/rules", Rule), key_by="item")).tables.keys() == {"rules"}
    assert shop(Broadcast("rules", RULES, key_by="item")).tables == {}


def test_the_fingerprint_covers_where_a_broadcast_state_is_from() -> None:
    made = [shop(), shop(Broadcast("rules", RULES, key_by="item"))]
    made += [shop(Broadcast("rules", DeltaTable(path, Rule), key_by="item")) for path in ("/a", "/b")]
    assert len({p.fingerprint for p in made}) == 4


def test_a_source_knows_its_partitions() -> None:
    p0, p1, other = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
    subscriptions = ("a", ("a",), TopicPattern("a"), frozenset({p0, p1}))
    for topics in subscriptions:
        source = KafkaSource(topics, Rule)
        assert [source.reads(tp) for tp in (p0, p1, other)] == [True, True, False]
    assert [KafkaSource(t, Rule).names for t in subscriptions] == [("a",), ("a",), (), ("a",)]
    assert not KafkaSource(frozenset({p0}), Rule).reads(p1)
