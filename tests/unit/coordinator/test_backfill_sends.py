"""What a backfill leaves unsent when its fork becomes live: the dry run names it, and `send` sends it (J2, Q7)."""

import pytest

from tests.support.bank import BankPipeline
from tests.unit.coordinator.test_backfill import backfill, repeat
from tests.unit.coordinator.test_recovery import three
from tests.unit.coordinator.test_restoring import sent, telling
from tidemark import KafkaSink
from tidemark.coordinator.checkpoints.loop import list_undelivered, record_delivery
from tidemark.coordinator.recovery.backfill import Backfill


def half_sent() -> tuple[BankPipeline, Backfill]:
    """Three checkpoints, the first two delivered; a backfill from the first one."""
    bank = telling(KafkaSink("seen", topic="out"))
    made = three(bank)
    for due in list_undelivered(bank.coordinator)[:2]:
        record_delivery(bank.coordinator, due)
    return bank, backfill(bank, made[0])


def test_the_dry_run_names_what_was_not_delivered() -> None:
    _, one = half_sent()
    found = one.outlook()
    assert {name: [c.id for c in left] for name, left in found.unsent.items()} == {"seen": [3]}


def test_what_came_before_the_beginning_is_sent_either_way() -> None:
    bank = telling(KafkaSink("seen", topic="out"))
    made = three(bank)
    assert {name: [c.id for c in left] for name, left in backfill(bank, made[1]).outlook().unsent.items()} == {
        "seen": [3]
    }


@pytest.mark.parametrize("send", [False, True])
def test_a_promoted_backfill_sends_what_was_not_sent_where_it_is_asked_to(send: bool) -> None:
    bank, one = half_sent()
    one = backfill(bank, one.restore_point.checkpoint, send=send)
    repeat(bank, one)
    one.promote(lambda: None)
    assert bank.coordinator.timelines.live() == one.fork
    assert sent(bank) == ([2] if send else [])
