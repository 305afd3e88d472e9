"""What a backfill's comparison tells equals a comparison of two plain dicts, key by key and field by field."""

import json
import os
import random
from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.support.disk import DiskPipeline
from tests.support.memory import Payment
from tidemark import Fold, KafkaSource, Pipeline, Process, state
from tidemark.coordinator.recovery.backfill import Backfill, BackfillRequest
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.readers.duckdb_session import open_query_runner
from tidemark.readers.field_changes import StateChange, change_of, measure_field
from tidemark.readers.state_diff import Comparison

SEED = int(os.environ.get("TIDEMARK_TEST_SEED", "20241121"))


class Account(state.Keyed):
    """A fold: the fix does not touch it."""

    payments: int = state.count()
    average: float | None = state.mean("amount")


class Wider(state.Keyed):
    """The same, one field less and one more."""

    payments: int = state.count()
    most: int | None = state.max("amount")


class Points(state.Keyed):
    """A process."""

    points: int = state.value(0)
    seen: list[int] = state.list()
    share: float = state.value(0.0)


def as_it_was(key: str, payments: Iterable[Payment], kept: Points) -> None:
    """A point for each unit."""
    for payment in payments:
        kept.points += payment.amount
        kept.seen.append(payment.amount)
        kept.share = kept.points / 7


def fixed(key: str, payments: Iterable[Payment], kept: Points) -> None:
    """Twice for large payments; who pays 0 is forgotten."""
    for payment in payments:
        kept.points += payment.amount * (2 if payment.amount > 5 else 1)
        kept.seen.append(payment.amount)
        kept.share = kept.points / 7
        if payment.amount == 0:
            kept.clear()


def bank(function: Any, account: type[state.Keyed] = Account) -> Pipeline:
    return Pipeline(
        name="bank",
        source=KafkaSource("payments", Payment),
        operators=[
            Fold("accounts", key_by="account", state=account),
            Process("points", key_by="account", state=Points, function=function),
        ],
        max_dead_letters=1.0,
    )


@dataclass(frozen=True)
class Story:
    """A warehouse with a backfill from its first checkpoint, and what was paid in each checkpoint."""

    line: DiskPipeline
    recorded: Checkpoint
    repeated: Checkpoint
    ancestor: int
    paid: list[list[tuple[str, int]]]

    def change(self, uid: str) -> StateChange:
        return change_of(
            Comparison(
                warehouse=str(self.line.root),
                uid=uid,
                before=self.recorded,
                after=self.repeated,
                ancestor=self.ancestor,
            )
        )


def story(root: Path, account: type[state.Keyed] = Account) -> Story:
    chance = random.Random(SEED)
    print(f"seed {SEED}; repeat with TIDEMARK_TEST_SEED={SEED}")
    line = DiskPipeline(root=root, pipeline=bank(as_it_was), topic="payments")
    paid, made = [], []
    for _ in range(4):
        batch = [(chance.choice("abcdefgh"), chance.choice([0, 1, 2, 3, 6, 9])) for _ in range(9)]
        # Keys stay in one partition, so that their order does not depend on where barriers cut.
        line.send([(ord(k) % 2, json.dumps({"account": k, "amount": a}).encode(), 1) for k, a in batch])
        paid.append(batch)
        made.append(line.checkpoint())
    line.pipeline = bank(fixed, account)
    request = BackfillRequest(begins=RestoreRequest(checkpoint=made[0].id))
    backfill = Backfill(coordinator=line.coordinator, pipeline=line.pipeline, request=request)
    backfill.begin()
    assert len(list(backfill.repeat(line.execute))) == 3
    pair = backfill.pair()
    assert pair is not None
    assert (pair.recorded, pair.ancestor) == (made[-1], made[0].id)
    return Story(line, pair.recorded, pair.repeated, pair.ancestor, paid)


def oracle(paid: list[list[tuple[str, int]]], is_fixed: bool) -> dict[str, tuple[int, list[int]]]:
    """Points and payments of each account that is known; the first checkpoint is always as it was."""
    known: dict[str, tuple[int, list[int]]] = {}
    for n, batch in enumerate(paid):
        for key, amount in batch:
            points, seen = known.get(key, (0, []))
            new = is_fixed and n > 0
            known[key] = (points + amount * (2 if new and amount > 5 else 1), [*seen, amount])
            if new and amount == 0:
                del known[key]
    return known


def test_differences_are_those_of_two_dicts(tmp_path: Path) -> None:
    made = story(tmp_path)
    was, is_now = oracle(made.paid, is_fixed=False), oracle(made.paid, is_fixed=True)
    both = was.keys() & is_now.keys()
    by = {k: is_now[k][0] - was[k][0] for k in both if is_now[k][0] != was[k][0]}
    lists = [k for k in both if is_now[k][1] != was[k][1]]
    changed = sorted(by.keys() | set(lists))
    touched = {k for batch in made.paid[1:] for k, _ in batch}
    found = made.change("points")
    assert changed and was.keys() - is_now.keys(), "a story in which nothing happens proves nothing"
    assert (found.inserted, found.deleted) == (0, len(was.keys() - is_now.keys()))
    assert (found.changed, found.equal) == (len(changed), len((touched & both) - set(changed)))
    fields = {f.name: f for f in found.fields}
    points = fields["points"]
    assert (points.keys, points.sum, points.largest) == (len(by), sum(by.values()), max(map(abs, by.values())))
    assert fields["share"].sum == pytest.approx(sum(by.values()) / 7)
    if lists:
        assert (fields["seen"].keys, fields["seen"].sum) == (len(lists), None)
    assert [e["key"]["account"] for e in found.examples] == changed[:3]
    for example in found.examples:
        assert example["after"]["points"] == is_now[example["key"]["account"]][0]
        assert example["before"]["points"] == was[example["key"]["account"]][0]


def test_what_the_fix_does_not_touch_is_equal_though_both_lines_wrote_it(tmp_path: Path) -> None:
    made = story(tmp_path)
    found = made.change("accounts")
    touched = {k for batch in made.paid[1:] for k, _ in batch}
    assert (found.inserted, found.deleted, found.changed, found.equal) == (0, 0, 0, len(touched))
    assert (found.fields, found.added, found.removed, found.examples) == ((), (), (), ())


def test_fields_of_one_side_are_named(tmp_path: Path) -> None:
    made = story(tmp_path, Wider)
    found = made.change("accounts")
    assert (found.changed, found.added, found.removed) == (0, ("most",), ("average",))


def test_nothing_repeated_is_nothing_to_compare(tmp_path: Path) -> None:
    line = DiskPipeline(root=tmp_path, pipeline=bank(as_it_was), topic="payments")
    line.send([(0, b'{"account":"a","amount":1}', 1)])
    request = BackfillRequest(begins=RestoreRequest(checkpoint=line.checkpoint().id))
    backfill = Backfill(coordinator=line.coordinator, pipeline=line.pipeline, request=request)
    assert backfill.pair() is None
    backfill.begin()
    assert list(backfill.repeat(line.execute)) == []
    assert backfill.pair() is None
    same = replace(line.pipeline, operators=line.pipeline.operators)
    assert Backfill(coordinator=line.coordinator, pipeline=same, request=request).outlook().left == ()


def differing(of: pa.DataType, *pairs: tuple[object, object]) -> list[tuple[Any, ...]]:
    """What is told of a field `x` that had, and has, these values: keys, sum and largest, exact and inexact."""
    side = pa.struct([("x", of)])
    rows = {n: pa.array([{"x": pair[at]} for pair in pairs], side) for at, n in enumerate(("before", "after"))}
    with open_query_runner() as ask:
        found = [measure_field(ask, pa.table(rows), "x", inexact) for inexact in (False, True)]
    return [(f.keys, f.sum, f.largest) for f in found]


def test_integers_differ_by_more_than_an_integer_holds() -> None:
    least, most = -(2**63), 2**63 - 1
    assert differing(pa.int64(), *[(least, most)] * 3)[0] == (3, 3 * (most - least), most - least)


def test_decimals_whose_differences_do_not_fit_have_no_sum() -> None:
    money, much = pa.decimal128(38, 2), Decimal(9) * 10**35
    assert differing(money, (Decimal(1), Decimal("1.05")), (Decimal(3), Decimal(2)))[0] == (2, Decimal("-0.95"), 1)
    assert differing(money, (0, much), (0, much))[0] == (2, None, much)
    assert differing(money, (-much, much))[0] == (1, None, None)


def test_floats_are_close_or_differ_and_what_is_infinite_or_no_number_is_close_to_itself_only() -> None:
    close, far = (1.0, 1.0 + 1e-12), (1.0, 2.0)
    exact, inexact = differing(pa.float64(), close, far)
    assert (exact[0], inexact) == (2, (1, 1.0, 1.0))
    odd = float("nan"), float("inf"), float("-inf")
    for one in odd:
        assert [found[0] for found in differing(pa.float64(), (one, one), close)] == [1, 0]
        for other in (1.0, 0.0, None, *(x for x in odd if x is not one)):
            assert [found[0] for found in differing(pa.float64(), (one, other), (other, one))] == [2, 2], (one, other)


def test_what_is_no_number_differs_without_a_sum() -> None:
    assert differing(pa.bool_(), (True, False), (None, None))[0] == (1, None, None)
    assert differing(pa.list_(pa.int64()), ([1], [1, 2]), ([], []), (None, []))[0] == (2, None, None)
