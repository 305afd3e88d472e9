"""Records without a value: deletes where a fold takes them, dead letters where it does not, and what they leave."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.delete_keys import CASES, Columns
from tidemark import Fold, KafkaSource, Pipeline, Process, state
from tidemark.errors import DeclarationError
from tidemark.formats.json import decode_key
from tidemark.formats.record_format import BadRecord
from tidemark.testing import BARRIER, CRASH, Replayed, replay


@dataclass(frozen=True)
class Price:
    """One record of a compacted topic."""

    sku: str
    shop: int
    cents: int | None = None


class Known(state.Keyed):
    """What is remembered."""

    n: int = state.count()
    cents: int | None = state.latest("cents")
    seen: list[int] = state.list("cents")


PIPELINE = Pipeline(
    name="prices",
    source=KafkaSource("prices", Price),
    operators=[
        Fold("skus", key_by="sku", state=Known, deletes=True),
        Fold("places", key_by=("shop", "sku"), state=Known, deletes=True),
        Fold("ever", key_by="sku", state=Known),
    ],
    max_dead_letters=1.0,
)


def gone(key: str) -> tuple[str, None, str]:
    return ("records", None, key)


def counts(done: Replayed, uid: str) -> list[tuple[int, int]]:
    return [(a.applied, a.dead_lettered) for c in done.checkpoints for a in [c.ack(uid)] if a is not None]


@pytest.mark.parametrize(("columns", "key", "expected"), CASES, ids=[repr(c[1])[:40] for c in CASES])
def test_a_message_key_names_a_key_or_nothing(columns: Columns, key: bytes | None, expected: Any) -> None:
    if expected is not None:
        assert decode_key(key, columns) == expected
        return
    with pytest.raises(BadRecord, match="bad_key"):
        decode_key(key, columns)


def test_a_delete_ends_what_was_and_what_follows_is_new() -> None:
    done = replay(PIPELINE, [[Price("a", 1, 5), Price("b", 1, 6)], BARRIER, [gone("a"), Price("a", 1, 7)], BARRIER])
    assert done.state("skus") == {"a": Known(n=1, cents=7, seen=[7]), "b": Known(n=1, cents=6, seen=[6])}
    assert done.state("ever")["a"] == Known(n=2, cents=7, seen=[5, 7])
    assert counts(done, "skus") == [(2, 0), (2, 0)]
    assert counts(done, "ever") == [(2, 0), (1, 1)]
    assert [r["reason"] for r in done.dead_letters("ever")] == ["null_value"]


def test_records_before_the_last_delete_of_a_batch_do_not_count_and_are_applied() -> None:
    batch = [Price("a", 1, 1), gone("a"), Price("a", 1, 2), gone("a")]
    done = replay(PIPELINE, [[Price("a", 1, 0)], BARRIER, batch, BARRIER])
    assert done.state("skus") == {}
    assert counts(done, "skus") == [(1, 0), (4, 0)]
    again = replay(PIPELINE, [batch, BARRIER, [Price("a", 1, 3)], BARRIER])
    assert again.state("skus") == {"a": Known(n=1, cents=3, seen=[3])}


def test_a_message_key_that_names_no_key_is_a_dead_letter_of_that_operator_only() -> None:
    done = replay(PIPELINE, [[Price("[1]", 1, 1), gone("[1]"), gone('[1,"[1]"]')], BARRIER])
    assert [(r["offset"], r["reason"]) for r in done.dead_letters("places")] == [(1, "bad_key")]
    assert done.dead_letters("skus") == []
    assert (done.state("skus"), done.state("places")) == ({}, {})


@pytest.mark.parametrize("seed", range(60))
def test_any_cut_and_any_crash_leave_what_a_dict_would_hold(seed: int) -> None:
    chance = random.Random(seed)
    script: list[Any] = []
    held: dict[str, list[int]] = {}
    for _ in range(chance.randrange(1, 6)):
        batch: list[Any] = []
        for _ in range(chance.randrange(6)):
            sku, cents = chance.choice("ab"), chance.randrange(9)
            if chance.random() < 0.3:
                held.pop(sku, None)
                batch.append(gone(sku))
            else:
                held.setdefault(sku, []).append(cents)
                batch.append(("records", Price(sku, 1, cents), sku))
        script += [batch, *([CRASH] if chance.random() < 0.3 else []), BARRIER]
    done = replay(PIPELINE, script, partitions=2)
    expected = {sku: Known(n=len(seen), cents=seen[-1], seen=seen) for sku, seen in held.items()}
    assert done.state("skus") == expected, f"seed {seed}"


def test_what_an_operator_emits_cannot_be_a_delete() -> None:
    class Seen(state.Keyed):
        last: int | None = state.value(None)

    def passed(key: str, records: Iterator[Price], seen: Seen) -> Iterator[Price]:
        yield from records

    with pytest.raises(DeclarationError, match="known: deletes=True on records that an operator emits"):
        Pipeline(
            name="chained",
            source=KafkaSource("prices", Price),
            operators=[
                Process("passed", key_by="sku", state=Seen, function=passed, emits=Price),
                Fold("known", key_by="sku", state=Known, input="passed", deletes=True),
            ],
        )
