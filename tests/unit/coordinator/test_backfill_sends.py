"""What a backfill leaves unsent when its fork becomes live: the dry run names it, and `send` sends it (J2, Q7)."""

import pytest

from tests.unit.coordinator.house import House
from tests.unit.coordinator.test_backfill import backfill, repeat
from tests.unit.coordinator.test_recovery import three
from tests.unit.coordinator.test_restoring import sent, telling
from tidemark import KafkaSink
from tidemark.coordinator.checkpoints.loop import delivered, undelivered
from tidemark.coordinator.recovery.backfill import Backfill


def half_sent() -> tuple[House, Backfill]:
    """Three checkpoints, the first two delivered; a backfill from the first one."""
    house = telling(KafkaSink("seen", topic="out"))
    made = three(house)
    for due in undelivered(house.coordinator)[:2]:
        delivered(house.coordinator, due)
    return house, backfill(house, made[0])


def test_the_dry_run_names_what_was_not_delivered() -> None:
    _, one = half_sent()
    found = one.outlook()
    assert {name: [c.id for c in left] for name, left in found.unsent.items()} == {"seen": [3]}


def test_what_came_before_the_beginning_is_sent_either_way() -> None:
    house = telling(KafkaSink("seen", topic="out"))
    made = three(house)
    assert {name: [c.id for c in left] for name, left in backfill(house, made[1]).outlook().unsent.items()} == {
        "seen": [3]
    }


@pytest.mark.parametrize("send", [False, True])
def test_a_promoted_backfill_sends_what_was_not_sent_where_it_is_asked_to(send: bool) -> None:
    house, one = half_sent()
    one = backfill(house, one.beginning.checkpoint, send=send)
    repeat(house, one)
    one.promote(lambda: None)
    assert house.coordinator.timelines.live() == one.fork
    assert sent(house) == ([2] if send else [])
