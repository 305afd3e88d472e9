"""State belongs to a uid: what else a declaration says, and in which order, does not move it (C2, C6, C7, C10)."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.support.bank import ASK, P1, PIPELINE, Account, BankPipeline, sourced
from tests.support.memory import Payment
from tidemark import Fold, Process, state
from tidemark.declare.operators import Operator
from tidemark.errors import NameRefusedError
from tidemark.model.state.evolution import compare_schemas

ACCOUNTS, COPIES = PIPELINE.operators[0], Fold("copies", key_by="account", state=Account)


class Seen(state.Keyed):
    """State of a function."""

    times: int = state.value(0)


def once(account: str, payments: Iterator[Payment], seen: Seen) -> None:
    """Counts by one."""
    for _ in payments:
        seen.times += 1


def twice(account: str, payments: Iterator[Payment], seen: Seen) -> None:
    """Counts by two."""
    for _ in payments:
        seen.times += 2


def bank(*operators: Operator) -> BankPipeline:
    """A pipeline of these, after one checkpoint over two payments."""
    made = BankPipeline(replace(PIPELINE, operators=operators))
    made.send(2)
    made.complete()
    return made


def declare(made: BankPipeline, *operators: Operator) -> None:
    made.pipeline = replace(PIPELINE, operators=operators)


def test_the_order_of_operators_says_nothing() -> None:
    made = bank(ACCOUNTS, COPIES)
    tables = made.coordinator.checkpoint(1).plan.tables
    declare(made, COPIES, ACCOUNTS)
    made.send(1)
    assert made.complete().plan.tables == tables
    assert made.state("accounts") == made.state("copies") == {("a",): (3, 3)}


def test_what_changes_around_an_operator_leaves_its_state_where_it_is() -> None:
    made = bank(ACCOUNTS, Process("seen", key_by="account", state=Seen, function=once))
    tables = made.coordinator.checkpoint(1).plan.tables
    later = Process("seen", key_by="account", state=Seen, function=twice)
    other = sourced(start="latest", group="watchers")
    made.pipeline = replace(other, operators=(later, COPIES, ACCOUNTS), gate=dict, max_dead_letters=0.5)
    made.send(1, P1)
    after = made.complete()
    assert {uid: after.plan.tables[uid] for uid in tables} == tables
    assert (made.state("accounts"), made.state("seen")) == ({("a",): (3, 3)}, {("a",): (4,)})
    assert made.state("copies") == {("a",): (1, 1)}


def test_an_operator_without_a_uid_cannot_be_declared() -> None:
    with pytest.raises(TypeError, match="uid"):
        Fold(key_by="account", state=Account)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="uid"):
        Process(key_by="account", state=Seen, function=once)  # type: ignore[call-arg]
    with pytest.raises(NameRefusedError, match="uid name refused: ''"):
        Fold("", key_by="account", state=Account)
    with pytest.raises(NameRefusedError, match="uid name refused: ''"):
        Process("", key_by="account", state=Seen, function=once)


def test_the_number_of_key_groups_stands_in_the_manifest_and_never_changes() -> None:
    made = bank(ACCOUNTS)
    stored = made.coordinator.checkpoint(1).plan.schemas["accounts"]
    assert stored.key_groups == 128
    (misfit,) = compare_schemas(stored, replace(stored, key_groups=64)).misfits
    assert str(misfit) == "accounts.key groups: 128 became 64 (give the operator a new uid)"


def test_an_operator_that_is_added_begins_with_what_is_read_from_now_on() -> None:
    made = bank(ACCOUNTS)
    declare(made, ACCOUNTS, COPIES)
    made.send(1)
    made.complete(ASK)
    assert (made.state("accounts"), made.state("copies")) == ({("a",): (3, 3)}, {("a",): (1, 1)})
