"""Keys of the store: padded, so that the order of names is the order of numbers."""

import pytest

from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.plan import Slot

SLOT = Slot(timeline="t1", sequence=3, k=2)


def test_every_object_has_its_place() -> None:
    assert keys.id_key(17) == "ids/000000000017.json"
    assert keys.plan_key(SLOT) == "plans/t1/000000000003.0002.json"
    assert keys.abort_key(SLOT) == "plans/t1/000000000003.0002.abort.json"
    assert keys.outcome_key(SLOT, 4) == "plans/t1/000000000003.0002/000004.outcome.json"
    assert keys.slot_key("t1", 3) == "timelines/t1/000000000003.json"
    assert keys.compaction_key("u", "j") == "compactions/u/j.json"
    assert keys.job_key("j") == "jobs/j.json"
    assert keys.stop_key(1) == "stops/00000001.json"


@pytest.mark.parametrize("number", [0, 1, 10**12 + 7])
def test_a_key_gives_its_number_back(number: int) -> None:
    for key in (
        keys.id_key(number),
        keys.slot_key("t1.5", number),
        keys.delivery_key("out.json", number),
        keys.stop_key(number),
        keys.savepoint_key("v2.json", number),
        keys.tombstone_key("checkpoint", "chk-17", number),
    ):
        assert keys.number_of(key) == number
        assert keys.greatest([keys.id_key(3), key]) == max(3, number)
    assert keys.place_of(keys.slot_key("t1.5", number)) == ("t1.5", number)
    assert keys.greatest([]) == 0


def test_the_order_of_names_is_the_order_of_numbers() -> None:
    slots = [keys.slot_key("t1", n) for n in (1, 9, 10, 99, 100, 10**9)]
    assert slots == sorted(slots)
