"""The history that the pages keep: each object is read once, newest first, and every kind of end is told apart."""

import random
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import duckdb
import pyarrow as pa
import pytest

from tests.support.trips import TripsPipeline
from tidemark.coordinator.records.tombstones import Tombstones
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.model.checkpoint.codec import body_of
from tidemark.model.checkpoint.plan import Slot
from tidemark.model.retention.savepoint import TombstoneKind
from tidemark.operations import timelines
from tidemark.ports import PutOutcome
from tidemark.storage.local_store import LocalStore
from tidemark.web import history_cache
from tidemark.web.history import CheckpointStatus, History, HistoryEntry, quantiles
from tidemark.web.history_cache import portion
from tidemark.web.history_lines import HistoryQuery, HistorySort


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


@dataclass
class Ends(Watched):
    """As a listing that knows only the last four keys of a folder."""

    def prefetch(self, keys: Iterable[str]) -> None:
        pass

    def renew(self) -> None:
        pass

    def newest(self, prefix: str) -> tuple[Mapping[str, str], bool]:
        return dict.fromkeys(self.list(prefix)[-4:], ""), False

    def around(self, key: str) -> tuple[Sequence[str], bool, bool]:
        return (), False, False

    def folders(self, prefix: str) -> Sequence[str]:
        return ()


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


def test_an_answer_with_an_older_listing_forgets_nothing_that_another_has_read(
    world: TripsPipeline, store: Watched
) -> None:
    made = [world.checkpoint(f"bus-{n}") for n in range(10)]
    ends, history = Ends(store.store), History(store)
    history.refresh(8)
    history.store = ends
    history.refresh(0)
    assert [e.id for e in history.entries] == made[:-9:-1]
    assert (history.total, history.unread) == (10, 2)
    history.refresh(8)
    assert ([e.id for e in history.entries], history.unread) == (made[::-1], 0)


@pytest.mark.parametrize("total", [1, 99, 5_000, 10_000, 12_345, 100_000])
def test_any_history_is_read_by_some_hundred_answers(total: int) -> None:
    most = portion(total)
    assert most == 100 if total <= 10_000 else 1 <= total / most <= 101


def test_an_answer_knows_as_many_as_it_needs_and_reads_old_ones_only_if_asked(
    world: TripsPipeline, store: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, size in {"PORTION": 4, "FIRST_PORTION": 2, "PART": 3}.items():
        monkeypatch.setattr(history_cache, name, size)
    made = [world.checkpoint(f"bus-{n}") for n in range(12)]
    remembered = history_cache.RememberedHistory(History(store))

    def read(least: int, *, more: bool) -> list[int]:
        return [entry.id for entry in remembered.read(store, least=least, more=more)]

    assert read(2, more=True) == made[:-3:-1]
    assert read(2, more=False) == made[:-3:-1] and remembered.history.unread == 10
    assert read(4, more=False) == made[:-6:-1], "a part is read whole"
    assert read(100, more=False) == made[:-10:-1], "a portion at most"
    made.append(world.checkpoint("new"))
    open_one = world.plan()
    assert read(2, more=False) == [open_one.id, *made[:-11:-1]]
    assert read(2, more=True) == [open_one.id, *made[::-1]] and remembered.history.unread == 0
    store.read.clear()
    read(2, more=True)
    assert not [key for key in store.read if key.startswith("timelines/") and not key.endswith("14.json")]


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


def test_of_a_damaged_manifest_the_plan_is_known_and_what_failed_in_its_slot_has_failed(
    world: TripsPipeline, store: Watched
) -> None:
    failed, number = world.fail(), world.checkpoint("a")
    whole = History(store)
    whole.refresh(100)
    (world.folder / "timelines/t1/000000000001.json").write_bytes(b"{}")
    history = History(store)
    history.refresh(100)
    assert told(history) == {number: CheckpointStatus.DAMAGED, failed: CheckpointStatus.FAILED}
    before, found = whole.entries[0], history.entries[0]
    assert before.trigger_ms > 0
    for name in ("slot", "parent", "origin", "fingerprint", "trigger_ms", "logical_time_ms", "uids", "spans"):
        assert getattr(found, name) == getattr(before, name), name
    assert (found.records, found.ack_ms, found.full_bytes) == (0, None, 0), "only the manifest says that"
    (world.folder / "plans/t1/000000000001.0002.json").write_bytes(b"{}")
    history.refresh(100)
    assert told(history) == {number: CheckpointStatus.DAMAGED, failed: CheckpointStatus.FAILED}
    assert history.entries[0].trigger_ms == 0


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


def entries_of(chance: random.Random) -> list[HistoryEntry]:
    """A history of any kinds, newest first, with equal measures here and there."""
    return [
        HistoryEntry(
            id=number,
            slot=Slot(timeline="t1", sequence=number),
            status=chance.choice([*CheckpointStatus, CheckpointStatus.COMPLETED]),
            trigger_ms=chance.randrange(40) * 60_000,
            ack_ms=chance.randrange(40, 80) * 60_000,
            records=chance.randrange(9),
            dead_letters=chance.randrange(3),
            run_bytes=chance.randrange(9),
            full_bytes=chance.randrange(9),
            pending={"t-0": chance.randrange(4), "t-1": chance.randrange(4)},
        )
        for number in range(120, 0, -1)
    ]


PLANNED = {"id": "id", "trigger_timestamp": "began", "pending_records": "lag"}
MEASURED = {
    "records": "records", "dead_letters": "letters", "checkpointed_size": "small", "state_size": "whole",
    "end_to_end_duration": "ack - began",
}  # fmt: skip


@pytest.mark.parametrize("measure", [*PLANNED, *MEASURED])
def test_a_history_is_sorted_and_cut_by_time_as_sql_does(measure: str) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)
    found = entries_of(chance)
    drawn = pa.table(
        {
            "id": [e.id for e in found],
            "done": [e.status is CheckpointStatus.COMPLETED for e in found],
            "began": [e.trigger_ms for e in found],
            "ack": [e.ack_ms for e in found],
            "lag": [sum(e.pending.values()) for e in found],
            "records": [e.records for e in found],
            "letters": [e.dead_letters for e in found],
            "small": [e.run_bytes for e in found],
            "whole": [e.full_bytes for e in found],
        }
    )
    assert drawn.num_rows == len(found)
    column = PLANNED.get(measure) or f"CASE WHEN done THEN {MEASURED[measure]} END"
    since, until = sorted(chance.randrange(40) * 60_000 for _ in range(2))
    for minus, way in (("", "ASC"), ("-", "DESC")):
        for first, last in ((0, 2**50), (since, until)):
            text = f"SELECT id FROM drawn WHERE began >= ? AND began < ? ORDER BY {column} {way} NULLS LAST, id DESC"
            expected = duckdb.execute(text, [first, last]).fetchall()
            query = HistoryQuery(
                sort=typing.cast(HistorySort, f"{minus}{measure}"),
                since=None if first == 0 else datetime.fromtimestamp(first / 1000, UTC),
                until=None if last == 2**50 else datetime.fromtimestamp(last / 1000, UTC).replace(tzinfo=None),
            )
            assert [e.id for e in query.select(found, {})] == [number for (number,) in expected]


def test_a_search_finds_why_a_checkpoint_failed(world: TripsPipeline, store: Watched) -> None:
    world.checkpoint("a")
    failed = world.fail("the broker was away")
    history = History(store)
    history.refresh(100)
    for text in ("engine_error", "BROKER WAS", f"chk-{failed}"):
        assert [e.id for e in HistoryQuery(text=text).select(history.entries, {})] == [failed], text
    assert HistoryQuery(text="code_changed").select(history.entries, {}) == []
