"""Keys of the store: padded, so that the order of names is the order of numbers."""

from tidemark.model import keys
from tidemark.model.plan import Slot

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


def test_the_order_of_names_is_the_order_of_numbers() -> None:
    slots = [keys.slot_key("t1", n) for n in (1, 9, 10, 99, 100, 10**9)]
    assert slots == sorted(slots)
