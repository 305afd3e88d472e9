"""The listing that the answers of a process share: what it shows at any time, and what it asks a store for."""

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.model.checkpoint import object_keys as keys
from tidemark.storage import key_survey, shared_listing
from tidemark.storage.shared_listing import RecordSnapshot, SharedListing

SKIPPED, CROSSED = ("plans", "scratch", "state"), ("scratch",)


@dataclass
class PagedDict:
    """A store that is a dictionary; it remembers what it was asked for."""

    objects: dict[str, str] = field(default_factory=dict)
    asked: list[tuple[str, int]] = field(default_factory=list)

    def page(self, after: str, most: int, folder: str = "") -> tuple[Mapping[str, str], bool]:
        self.asked.append((after, most))
        rest = [key for key in sorted(self.objects) if key > after and key.startswith(folder)]
        return {key: self.objects[key] for key in rest[:most]}, len(rest) > most

    def complete(self, count: int) -> None:
        """Adds checkpoints, each with an id, a manifest, a plan and a file."""
        begin = sum(key.startswith("ids/") for key in self.objects)
        for n in range(begin + 1, begin + count + 1):
            for key in (keys.id_key(n), keys.slot_key("t1", n), f"plans/t1/{n:012d}.0001.json", f"state/{n}.parquet"):
                self.objects[key] = f"made {n}"

    def records(self) -> dict[str, str]:
        return {key: stamp for key, stamp in self.objects.items() if key.partition("/")[0] not in SKIPPED}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages and chunks so small that a few dozen checkpoints fill many of them."""
    sizes = {"PAGE": 12, "FIRST_PAGE": 5, "LONG": 10, "TAIL": 4, "_GROWTH": 3, "PART": 9, "PARTS": 3}
    for module in (key_survey, shared_listing):
        for name in sizes.keys() & vars(module).keys():
            monkeypatch.setattr(module, name, sizes[name])


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("complete"), st.integers(1, 40)),
        st.tuples(st.just("record"), st.sampled_from(["stops/1", "savepoints/a/1", "zz/1", "aa/1", "sweeps/7"])),
        st.tuples(st.just("drop record"), st.sampled_from(["stops/1", "savepoints/a/1", "aa/1"])),
        st.tuples(st.just("scratch"), st.integers(0, 40)),
        st.tuples(st.just("begin timeline"), st.sampled_from(["t0", "t10", "t2", "what-if"])),
        st.tuples(st.just("release"), st.integers(1, 60)),
        st.tuples(st.just("revise"), st.integers(1, 60)),
        st.tuples(st.just("create again"), st.integers(0, 30)),
        st.tuples(st.just("look"), st.just(0)),
        st.tuples(st.just("need"), st.sampled_from(["ids/", "timelines/", "timelines/t1/", keys.id_key(20), "zz/"])),
    ),
    max_size=25,
)


def take(store: PagedDict, step: tuple[str, object], sweeps: Iterator[int]) -> None:
    """Changes the store. What changes in the middle of a folder is announced, as Tidemark does."""
    match step:
        case ("complete", int(count)):
            store.complete(count)
        case ("record", str(name)):
            store.objects[f"{name}.json"] = "new"
        case ("drop record", str(name)):
            store.objects.pop(f"{name}.json", None)
        case ("scratch", int(count)):
            for name in [key for key in store.objects if key.startswith("scratch/")]:
                del store.objects[name]
            store.objects |= {f"scratch/a/{n}.parquet": "there" for n in range(count)}
        case ("begin timeline", str(name)):
            store.objects |= {keys.slot_key(name, n): "fork" for n in range(1, 4)}
        case ("release", int(number)):
            store.objects.pop(keys.id_key(number), None)
            store.objects.pop(keys.slot_key("t1", number), None)
            store.objects[f"swept/{next(sweeps):08d}.json"] = "done"
        case ("revise", int(number)) if keys.slot_key("t1", number) in store.objects:
            store.objects[keys.revision_key("t1", number, 1)] = "erased"
            store.objects[f"erasures/{next(sweeps):06d}.end.json"] = "done"
        case ("create again", int(count)):
            store.objects.clear()
            store.complete(count)
            store.objects = {key: f"again, {stamp}" for key, stamp in store.objects.items()}


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_each_answer_sees_all_records_whatever_happened_before(steps: list[tuple[str, object]]) -> None:
    store = PagedDict()
    listing = SharedListing(store, SKIPPED, CROSSED)
    sweeps = iter(range(1, 100))
    for step in steps:
        take(store, step, sweeps)
        seen = listing.snapshot()
        assert_is_true(seen, store.records())
        prefix = step[1] if step[0] == "need" else ""
        assert isinstance(prefix, str)
        if step[0] == "need":
            seen = listing.fill(seen, seen.gaps_of(prefix))
            assert_is_true(seen, store.records())
            there = [key for key in sorted(store.records()) if key.startswith(prefix)]
            assert list(seen.below(prefix)) == there
            if prefix == keys.id_key(20):
                near, is_first, is_last = seen.around(prefix)
                ids = [key for key in sorted(store.records()) if key.startswith("ids/")]
                begin = ids.index(near[0]) if near else 0
                assert list(near) == ids[begin : begin + len(near)] and (prefix in near) == (prefix in ids)
                assert is_first == (ids[:1] == list(near[:1])) and is_last == (ids[-1:] == list(near[-1:]))


def assert_is_true(seen: RecordSnapshot, records: Mapping[str, str]) -> None:
    """A snapshot has every record but those in its gaps, and none else."""
    listed = {key: stamp for key, stamp in records.items() if not any(gap.takes(key) for gap in seen.gaps)}
    assert dict(seen.stamps) == listed
    assert list(seen.keys) == sorted(listed)
    assert not any(gap.after.partition("/")[0] in SKIPPED for gap in seen.gaps)
    for prefix in ("", "ids/", "timelines/", "timelines/t1/", "timelines/t10/", "stops/", "none/"):
        newest, is_all = seen.newest(prefix)
        assert all(records[key] == stamp for key, stamp in newest.items())
        there = [key for key in sorted(records) if key.startswith(prefix)]
        assert list(newest) == (there if is_all else there[-len(newest) :]) and bool(newest) == bool(there), prefix
        assert {key.rpartition("/")[0] for key in seen.below(prefix)} == {key.rpartition("/")[0] for key in there}


def test_a_record_that_vanishes_without_a_trace_is_missed_for_a_turn_at_most() -> None:
    store = PagedDict()
    store.complete(60)
    listing = SharedListing(store, SKIPPED, CROSSED)
    listing.snapshot()
    del store.objects[keys.id_key(7)]
    store.objects[keys.slot_key("t1", 31)] = "put back from a backup"
    turns = 0
    while dict(listing.snapshot().stamps) != store.records():
        turns += 1
    assert 0 < turns <= 16, "so many chunks there are"


def test_a_poll_asks_for_few_keys_and_the_first_listing_for_many_at_the_same_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.undo()
    store = PagedDict()
    store.complete(5000)
    listing = SharedListing(store, SKIPPED, CROSSED)
    seen = listing.snapshot()
    assert len(store.asked) <= 28 and sum(most for _, most in store.asked) <= 3600
    assert [len(seen.newest(folder)[0]) for folder in ("ids/", "timelines/t1/")] == [51, 51]
    store.asked.clear()
    assert_is_true(listing.fill(seen, seen.gaps_of(keys.id_key(1300))), store.records())
    assert len(store.asked) == 1
    store.asked.clear()
    whole = listing.fill(seen, seen.gaps)
    assert dict(whole.stamps) == store.records() and len(store.asked) == len(seen.gaps) - 1
    for _ in range(3):
        store.asked.clear()
        store.complete(1)
        assert dict(listing.snapshot().stamps) == store.records()
        assert len(store.asked) <= 7
        assert sum(min(most, 1000) for _, most in store.asked) <= 1600, "one chunk, and the ends"


@pytest.mark.parametrize("count", [249, 251, 1200, 7850, 7851, 70_000])
def test_the_end_of_a_folder_is_found_in_a_few_steps(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.undo()
    store = PagedDict({keys.id_key(n): "there" for n in range(1, count + 1)} | {"stops/00000001.json": "there"})
    seen = SharedListing(store, SKIPPED, CROSSED).snapshot()
    assert_is_true(seen, store.records())
    assert 0 < len(seen.newest("ids/")[0]) <= 1000 and seen.newest("stops/") == ({"stops/00000001.json": "there"}, True)
    assert len(store.asked) <= 60
    assert sum(most for _, most in store.asked) <= 4000


def test_the_keys_around_one_reach_to_the_next_gaps() -> None:
    store = PagedDict()
    store.complete(200)
    listing = SharedListing(store, SKIPPED, CROSSED)
    ids = [keys.id_key(n) for n in range(1, 201)]
    for at in range(len(ids)):
        first = SharedListing(store, SKIPPED, CROSSED).snapshot()
        seen = listing.fill(first, first.gaps_of(ids[at]))
        near, is_first, is_last = seen.around(ids[at])
        begin = ids.index(near[0])
        assert ids[at] in near and list(near) == ids[begin : begin + len(near)] and len(near) < 60
        assert (is_first, is_last) == (begin == 0, near[-1] == ids[-1])


def test_a_folder_with_holes_in_its_numbers_loses_none_of_its_keys() -> None:
    store = PagedDict()
    store.complete(30)
    listing = SharedListing(store, SKIPPED, CROSSED)
    for number in (60, 61, 190, 191):
        store.objects[keys.id_key(number)] = f"made {number}"
        for seen in (SharedListing(store, SKIPPED, CROSSED).snapshot(), *(listing.snapshot() for _ in range(3))):
            assert_is_true(seen, store.records())
    fresh = SharedListing(store, SKIPPED, CROSSED)
    for _ in range(30):
        assert_is_true(fresh.snapshot(), store.records())
    assert dict(fresh.snapshot().stamps) == store.records()


def test_each_poll_lists_a_chunk_more() -> None:
    store = PagedDict()
    store.complete(200)
    listing = SharedListing(store, SKIPPED, CROSSED)
    chunks, polls = len(listing.snapshot().gaps), 0
    while gaps := listing.snapshot().gaps:
        polls += 1
        assert polls < 2 * chunks + 4, gaps
    assert chunks > 20 and dict(listing.snapshot().stamps) == store.records()


def test_prefixes_are_folders_and_ends_are_their_first_and_last_keys() -> None:
    store = PagedDict()
    store.complete(3)
    store.objects |= dict.fromkeys([keys.slot_key("t10", 1), keys.slot_key("t10", 2), "stops/00000001.json"], "x")
    seen = SharedListing(store, SKIPPED, CROSSED).snapshot()
    assert list(seen.below("timelines/t1/")) == [keys.slot_key("t1", n) for n in (1, 2, 3)]
    assert list(seen.ends("timelines/")) == [
        keys.slot_key(*at) for at in (("t1", 1), ("t1", 3), ("t10", 1), ("t10", 2))
    ]
    assert list(seen.ends("stops/")) == ["stops/00000001.json"] * 2 and list(seen.ends("none/")) == []


def test_answers_that_come_while_one_is_listed_share_the_next_listing() -> None:
    """Neither may take the listing that began before it came."""
    store = PagedDict()
    store.complete(3)
    listing, begun, goes_on = SharedListing(store, SKIPPED, CROSSED), threading.Event(), threading.Event()
    first = store.page

    def slow(after: str, most: int, folder: str = "") -> tuple[Mapping[str, str], bool]:
        found = first(after, most, folder)
        begun.set()
        assert goes_on.wait(10)
        return found

    store.page = slow  # type: ignore[method-assign]
    found: list[int] = []
    look = [threading.Thread(target=lambda: found.append(len(listing.snapshot().below("ids/")))) for _ in range(5)]
    look[0].start()
    assert begun.wait(10)
    store.complete(1)
    for thread in look[1:]:
        thread.start()
    while listing._arrived < 5:
        pass
    store.page = first  # type: ignore[method-assign]
    goes_on.set()
    for thread in look:
        thread.join()
    assert sorted(found) == [3, 4, 4, 4, 4]
    whole = len(SKIPPED) - len(CROSSED) + 1
    assert len(store.asked) == 2 * whole, "two listings for five answers"
