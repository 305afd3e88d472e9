"""The history that the pages keep: each object is read once, newest first, and every kind of end is told apart."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import duckdb
import pytest

from tests.support.trips import TripsPipeline
from tidemark.coordinator.records.tombstones import Tombstones
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.model.checkpoint.codec import body_of
from tidemark.model.retention.savepoint import TombstoneKind
from tidemark.operations import timelines
from tidemark.ports import PutOutcome
from tidemark.storage.local_store import LocalStore
from tidemark.web.history import CheckpointStatus, History, quantiles
from tidemark.web.history_cache import portion


@dataclass
class Watched:
    """A real store that remembers what was read of it."""

    store: LocalStore
    read: list[str] = field(default_factory=list)

    def get(self, key: str) -> bytes | None:
        self.read.append(key)
        return self.store.get(key)

    def list(self, prefix: str) -> Sequence[str]:
        return self.store.list(prefix)

    def put_if_absent(self, key: str, body: bytes) -> PutOutcome:
        return self.store.put_if_absent(key, body)


@pytest.fixture
def store(world: TripsPipeline) -> Watched:
    return Watched(LocalStore(world.folder))


def told(history: History) -> dict[int, CheckpointStatus]:
    return {e.id: e.status for e in history.entries}


def test_what_is_final_is_read_once_and_what_is_open_again(world: TripsPipeline, store: Watched) -> None:
    world.checkpoint("a")
    failed = world.fail()
    world.checkpoint("b")
    pending = world.plan()
    history = History(store)
    history.refresh(100)
    store.read.clear()
    history.refresh(100)
    assert {key for key in store.read if not key.startswith("ids/")} <= {
        f"plans/t1/000000000003.0001{tail}.json" for tail in ("", ".abort")
    } | {"timelines/t1/000000000003.json"}
    assert told(history)[failed] is CheckpointStatus.FAILED
    assert told(history)[pending.id] is CheckpointStatus.IN_PROGRESS
    assert [e.id for e in history.entries] == [4, 3, 2, 1]


def test_a_portion_takes_the_newest_first_and_later_ones_the_rest(world: TripsPipeline, store: Watched) -> None:
    made = [world.checkpoint(f"bus-{n}") for n in range(5)]
    history = History(store)
    seen = []
    for left in (3, 1, 0):
        history.refresh(2)
        seen.append(([e.id for e in history.entries], history.unread))
        assert history.unread == left
    assert seen[0] == (made[:2:-1], 3)
    assert seen[-1] == (made[::-1], 0)


@pytest.mark.parametrize("total", [0, 99, 5_000, 10_000, 12_345, 100_000])
def test_any_history_is_read_by_some_hundred_answers(total: int) -> None:
    most = portion(total)
    assert most == 100 if total <= 10_000 else 1 <= total / most <= 101


def test_a_damaged_manifest_is_told_and_heals_when_it_is_put_back(world: TripsPipeline, store: Watched) -> None:
    number = world.checkpoint("a")
    file = world.folder / "timelines/t1/000000000001.json"
    whole = file.read_bytes()
    file.write_bytes(whole.replace(b'"records":1', b'"records":7'))
    history = History(store)
    history.refresh(100)
    assert told(history) == {number: CheckpointStatus.DAMAGED}
    assert "checksum" in history.entries[0].failure[1]
    file.write_bytes(whole)
    history.refresh(100)
    assert told(history) == {number: CheckpointStatus.COMPLETED}


def test_a_plan_whose_timeline_ended_first_is_no_line(world: TripsPipeline, store: Watched) -> None:
    first = world.checkpoint("a")
    world.checkpoint("b")
    open_one = world.plan()
    timelines.restore(world.pages, "trips", RestoreRequest(checkpoint=first, request="r"))
    history = History(store)
    history.refresh(100)
    assert open_one.id not in told(history)
    store.read.clear()
    history.refresh(100)
    assert not [key for key in store.read if key.startswith(("plans/", "timelines/"))]


def test_a_tombstone_that_is_confirmed_means_discarded(world: TripsPipeline, store: Watched) -> None:
    first, second, third = (world.checkpoint(bus) for bus in "abc")
    coordinator = world.line.coordinator
    tombstones = Tombstones(
        objects=coordinator.objects, clock=coordinator.clock, write_ids=coordinator.write_ids
    )  # fmt: skip
    raised = [tombstones.raise_for(TombstoneKind.CHECKPOINT, f"chk-{n}", "old")[0] for n in (first, second, third)]
    assert tombstones.confirm(raised[0])
    tombstones.withdraw(raised[1], "a pin was found")
    history = History(store)
    history.refresh(100)
    assert history.discarded == {first}


def test_an_id_that_is_gone_from_the_store_is_gone_from_the_history(world: TripsPipeline, store: Watched) -> None:
    first, second = world.checkpoint("a"), world.checkpoint("b")
    history = History(store)
    history.refresh(100)
    (world.folder / "ids/000000000001.json").unlink()
    history.refresh(100)
    assert list(told(history)) == [second] and first not in told(history)


def test_quantiles_are_those_of_sql() -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)
    for size in (1, 2, 3, 10, 1001):
        values = [chance.randrange(10**6) for _ in range(size)]
        shares = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}
        text = ", ".join(f"quantile_cont(v, {share})" for share in shares.values())
        [expected] = duckdb.execute(f"SELECT {text} FROM unnest(?) AS t(v)", [values]).fetchall()
        found = quantiles(values)
        assert [getattr(found, name) for name in shares] == pytest.approx(expected)
        assert (found.min, found.max) == (min(values), max(values))
    assert set(body_of(quantiles([])).values()) == {0}
