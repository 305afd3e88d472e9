"""Conditions, key expressions and the global fold, against plain Python over the same records, however they are cut."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.sales_to_filter import HOURS, NOON, WHERE, Customer, Sale, Sales
from tidemark import Fold, KafkaSource, Pipeline
from tidemark.testing import BARRIER, replay

SALES = st.builds(
    Sale,
    shop=st.sampled_from([None, "A", "a", "ä", "Ä", "ß", "İ"]) | st.text(max_size=3),
    amount=st.none() | st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3),
    customer=st.none() | st.builds(Customer, country=st.sampled_from([None, "XX", "CH"])),
    at=st.integers(-(10**15), 10**13).map(lambda us: NOON + timedelta(microseconds=us)),
)
SCRIPTS = st.lists(st.lists(SALES, max_size=5), min_size=1, max_size=3)
LOWER = {ord(c): ord(c) + 32 for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}


def _taken(sale: Sale) -> bool:
    country = None if sale.customer is None else sale.customer.country
    return sale.amount is not None and sale.amount > 0 and (country or "CH") != "XX"


def _pipeline(**options: Any) -> Pipeline:
    fold = Fold("folded", state=Sales, where=WHERE, **options)
    return Pipeline(
        name="sales", source=KafkaSource("sales", Sale, event_time="at"), operators=[fold], max_dead_letters=1.0
    )


def _script(parts: Sequence[Sequence[Sale]]) -> list[Any]:
    return [item for part in parts for item in (part, BARRIER)]


@settings(deadline=None)
@given(SCRIPTS)
def test_a_filtered_fold_by_expressions_is_what_plain_python_makes_of_the_records(parts: list[list[Sale]]) -> None:
    done = replay(_pipeline(key_by=HOURS), _script(parts))
    expected: dict[Any, list[int]] = defaultdict(list)
    counts: list[Counter[str]] = []
    for part in parts:
        found = Counter[str]()
        for sale in part:
            is_good = sale.shop is not None
            what = "filtered" if not _taken(sale) else "applied" if is_good else "letters"
            found[what] += 1
            if what == "applied":
                assert sale.shop is not None
                hour = sale.at.replace(minute=0, second=0, microsecond=0)
                expected[sale.shop.translate(LOWER), hour].append(sale.amount or 0)
        counts.append(found)
    acks = [c.sealed.acks[0] for c in done.checkpoints]
    assert [(a.read, a.applied, a.filtered, a.dead_lettered) for a in acks] == [
        (found.total(), found["applied"], found["filtered"], found["letters"]) for found in counts
    ]
    state = {key: (row.sales, row.amount) for key, row in done.state("folded").items()}
    assert state == {key: (len(amounts), max(amounts)) for key, amounts in expected.items()}


@settings(deadline=None)
@given(SCRIPTS)
def test_a_global_fold_has_one_row_or_none(parts: list[list[Sale]]) -> None:
    done = replay(_pipeline(key_by=()), _script(parts))
    taken = [sale.amount or 0 for part in parts for sale in part if _taken(sale)]
    state = {key: (row.sales, row.amount) for key, row in done.state("folded").items()}
    assert state == ({True: (len(taken), max(taken))} if taken else {})
    assert all(not ack.dead_lettered for c in done.checkpoints for ack in c.sealed.acks), "no record lacks the key"
