"""One small thing that is wrong stops no pipeline: a record that nothing needs, a clock that was ahead once."""

from dataclasses import replace
from datetime import timedelta

import pytest

from tests.support.bank import ASK, PIPELINE, BankPipeline
from tidemark.coordinator.records.states import Refused
from tidemark.errors import StoreError

DAY = 86_400_000
MINUTE = 60_000


def compacted(bank: BankPipeline) -> str:
    """A checkpoint whose state was compacted as the product names it; the key of the record."""
    bank.send(1)
    made = bank.complete()
    bank.compact(made, "accounts", made.handles["accounts"], job=f"accounts.{made.id}.{bank.ids()}")
    return max((k for k in bank.store.objects if k.startswith("compactions/")), key=lambda k: int(k.split(".")[1]))


def test_a_damaged_record_of_a_compaction_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    bank = BankPipeline()
    first = compacted(bank)
    bank.send(1)
    assert bank.complete().plan.adopted, "it was adopted"
    second = compacted(bank)
    for key in (first, second):
        bank.store.objects[key] = bank.store.objects[key][:-5]
    bank.send(1)
    made = bank.complete()
    assert not made.plan.adopted
    assert bank.state("accounts") == {("a",): (4, 4)}
    assert f"a compaction was not adopted: object damaged: {second}" in caplog.text
    compacted(bank)
    bank.send(1)
    assert bank.complete().plan.adopted, "the next one is"


def test_a_damaged_table_of_a_compaction_is_passed_over(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank = BankPipeline()
    compacted(bank)

    def damaged(handle: object) -> bool:
        raise StoreError(f"version 0 of {handle} is gone", next="-")

    with monkeypatch.context() as patch:
        patch.setattr(bank.tables, "files_exist", damaged)
        bank.send(1)
        assert not bank.complete().plan.adopted
    assert "a compaction was not adopted: version 0 of " in caplog.text
    bank.send(1)
    assert bank.complete().plan.adopted, "the table is back"
    assert bank.state("accounts") == {("a",): (3, 3)}


def test_a_plan_reads_no_record_of_a_compaction_that_is_older_than_what_is_adopted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bank, read = BankPipeline(), list[str]()
    for _ in range(6):
        compacted(bank)
    bank.send(1)
    get = bank.store.get

    def noting(key: str) -> bytes | None:
        read.append(key)
        return get(key)

    monkeypatch.setattr(bank.store, "get", noting)
    assert bank.plan().adopted
    assert len({key for key in read if key.startswith("compactions/")}) <= 2, "six were made"


def test_a_clock_that_was_ahead_once_makes_nobody_wait_longer_than_the_pause() -> None:
    bank = BankPipeline(pipeline=replace(PIPELINE, min_pause=timedelta(minutes=1)))
    bank.clock.ms = 130 * DAY
    bank.send(1)
    bank.complete()
    bank.clock.ms = 100 * DAY  # put right
    bank.send(1)
    found = bank.coordinator.trigger(bank.pipeline, ASK)
    assert isinstance(found, Refused)
    assert found.wait_ms == MINUTE
