"""One small thing that is wrong stops no pipeline: a record that nothing needs, a clock that was ahead once."""

from dataclasses import replace
from datetime import timedelta

import pytest

from tests.support.bank import ASK, PIPELINE, BankPipeline
from tidemark.coordinator.records.states import Refused
from tidemark.errors import StoreError

DAY = 86_400_000
MINUTE = 60_000


def compacted(house: BankPipeline) -> str:
    """A checkpoint whose state was compacted as the product names it; the key of the record."""
    house.send(1)
    made = house.complete()
    house.compact(made, "accounts", made.handles["accounts"], job=f"accounts.{made.id}.{house.ids()}")
    return max((k for k in house.store.objects if k.startswith("compactions/")), key=lambda k: int(k.split(".")[1]))


def test_a_damaged_record_of_a_compaction_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    house = BankPipeline()
    first = compacted(house)
    house.send(1)
    assert house.complete().plan.adopted, "it was adopted"
    second = compacted(house)
    for key in (first, second):
        house.store.objects[key] = house.store.objects[key][:-5]
    house.send(1)
    made = house.complete()
    assert not made.plan.adopted
    assert house.state("accounts") == {("a",): (4, 4)}
    assert f"a compaction is not adopted: object damaged: {second}" in caplog.text
    compacted(house)
    house.send(1)
    assert house.complete().plan.adopted, "the next one is"


def test_a_damaged_table_of_a_compaction_is_passed_over(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = BankPipeline()
    compacted(house)

    def damaged(handle: object) -> bool:
        raise StoreError(f"version 0 of {handle} is gone", next="-")

    with monkeypatch.context() as patch:
        patch.setattr(house.tables, "files_exist", damaged)
        house.send(1)
        assert not house.complete().plan.adopted
    assert "a compaction is not adopted: version 0 of " in caplog.text
    house.send(1)
    assert house.complete().plan.adopted, "the table is back"
    assert house.state("accounts") == {("a",): (3, 3)}


def test_a_plan_reads_no_record_of_a_compaction_that_is_older_than_what_is_adopted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    house, read = BankPipeline(), list[str]()
    for _ in range(6):
        compacted(house)
    house.send(1)
    get = house.store.get
    monkeypatch.setattr(house.store, "get", lambda key: read.append(key) or get(key))
    assert house.plan().adopted
    assert len({key for key in read if key.startswith("compactions/")}) <= 2, "six were made"


def test_a_clock_that_was_ahead_once_makes_nobody_wait_longer_than_the_pause() -> None:
    house = BankPipeline(pipeline=replace(PIPELINE, min_pause=timedelta(minutes=1)))
    house.clock.ms = 130 * DAY
    house.send(1)
    house.complete()
    house.clock.ms = 100 * DAY  # put right
    house.send(1)
    found = house.coordinator.trigger(house.pipeline, ASK)
    assert isinstance(found, Refused)
    assert found.wait_ms == MINUTE
