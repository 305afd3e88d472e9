"""Folds that join broadcast states, against plain dicts: any records, any change of what is joined, any cut, crash."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.join_cases import BUSES, NOON, Bus, Driver, Trip
from tidemark.errors import StateOverflowError
from tidemark.testing import BARRIER, CRASH, Barrier, Crash, Overwrite, Script, replay

NAMES, DEPOTS, LINES = st.sampled_from(["a", "b", "ü"]), st.sampled_from(["north", "south"]), st.integers(1, 2)
TRIPS = st.builds(
    Trip,
    bus=st.none() | NAMES,
    line=LINES,
    riders=st.integers(0, 9),
    at=st.integers(-3, 3).map(lambda n: NOON + timedelta(minutes=n)),
).map(lambda trip: ("records", trip, str(trip.line)))
"""The message key keeps the trips of a line in one partition, as deletes need it."""
ROWS = st.builds(Bus, bus=NAMES, depot=st.none() | DEPOTS, seats=st.integers(0, 50)).map(lambda b: ("buses", b, b.bus))
GONE = NAMES.map(lambda name: ("buses", None, name))
CLOSED = LINES.map(lambda line: ("records", None, str(line)))
BAD = st.sampled_from([("records", b"{"), ("buses", b"[]", "a")])
DRIVERS = st.dictionaries(st.tuples(LINES, NAMES), st.none() | st.sampled_from(["Ada", "Bo"]), max_size=3)
STEPS = ["plan", "attempt", "read", "process.crowds", "gate", "fsync", "seal", "publish"]
CRASHES = st.builds(CRASH.at, st.sampled_from(STEPS), st.sampled_from(["before", "after"]))


@dataclass(frozen=True)
class Cut:
    """One checkpoint: what arrives before its barrier, the new content of the table, a crash, if any."""

    records: list[tuple[Any, ...]]
    drivers: dict[tuple[int, str], str | None] | None
    crash: Crash | None


RECORDS = st.lists(TRIPS | ROWS | GONE | CLOSED | BAD, max_size=12)
CUTS = st.lists(st.builds(Cut, records=RECORDS, drivers=st.none() | DRIVERS, crash=st.none() | CRASHES), max_size=5)


def script(cuts: list[Cut]) -> Script:
    """The cuts as `replay` takes them; the table is there from the beginning, and empty."""
    parts: list[Iterable[object] | Barrier | Crash | Overwrite] = [Overwrite("/drivers", [])]
    for cut in cuts:
        if cut.drivers is not None:
            parts.append(Overwrite("/drivers", [Driver(*key, name) for key, name in cut.drivers.items()]))
        parts += [cut.records, *([cut.crash] if cut.crash else []), BARRIER]
    return parts


@dataclass(frozen=True)
class Seen:
    """A trip as it was joined when its checkpoint was made, and what "latest" goes by."""

    trip: Trip
    bus: Bus | None
    driver: str | None
    order: tuple[datetime, int]


class Book:
    """The brute-force model: all trips, each with what was valid at its barrier; nothing of the product in it."""

    def __init__(self) -> None:
        self.fed = 0
        self.buses: dict[str, Bus] = {}
        self.drivers: dict[tuple[int, str], str | None] = {}
        self.trips: list[Seen] = []
        self.of_line = defaultdict[int, list[Seen]](list)

    def checkpoint(self, cut: Cut) -> Counter[tuple[str, str]]:
        """Applies one cut, what is broadcast first; the dead letters by (uid, reason)."""
        self._broadcast(cut)
        letters = Counter[tuple[str, str]]()
        for name, body, *_ in cut.records:
            if name == "buses":
                letters["buses", "not_an_object"] += isinstance(body, bytes)
            elif isinstance(body, bytes):
                letters.update((uid, "malformed_json") for uid in ("yards", "lines", "crowds"))
            elif body is None:
                letters.update((uid, "null_value") for uid in ("yards", "crowds"))
        for name, body, *key in cut.records:
            if name == "records" and body is None:
                self.of_line[int(key[0])].clear()
            elif isinstance(body, Trip):
                self._apply(body, letters)
        return +letters

    def _broadcast(self, cut: Cut) -> None:
        if cut.drivers is not None:
            self.drivers = dict(cut.drivers)
        for name, body, *key in cut.records:
            if name == "buses" and not isinstance(body, bytes):
                self.buses.pop(key[0], None)
                if body is not None:
                    self.buses[key[0]] = body

    def _apply(self, trip: Trip, letters: Counter[tuple[str, str]]) -> None:
        self.fed += 1
        bus = self.buses.get(trip.bus or "")
        has_depot = bus is not None and bus.depot is not None
        letters["yards", "null_key"] += not has_depot
        letters["crowded", "null_key"] += trip.riders > 5 and not has_depot
        seen = Seen(trip, bus, self.drivers.get((trip.line, trip.bus or "")), (trip.at, self.fed))
        self.trips.append(seen)
        self.of_line[trip.line].append(seen)

    def yards(self) -> dict[tuple[int, str], tuple[int, int, int, str | None]]:
        """What `yards` must hold."""
        found = defaultdict[tuple[int, str], list[Seen]](list)
        for s in self.trips:
            if s.bus is not None and s.bus.depot is not None:
                found[s.trip.line, s.bus.depot].append(s)
        return {
            key: (
                len(all_of),
                sum(s.trip.riders for s in all_of),
                sum(s.bus.seats for s in all_of if s.bus),
                max(all_of, key=lambda s: s.order).driver,
            )
            for key, all_of in found.items()
        }

    def lines(self) -> dict[int, tuple[int, list[str], Bus | None]]:
        """What `lines` must hold."""
        return {
            line: (
                len(all_of),
                sorted({s.bus.depot for s in all_of if s.bus and s.bus.depot}),
                max(all_of, key=lambda s: s.order).bus,
            )
            for line, all_of in self.of_line.items()
            if all_of
        }

    def crowded(self) -> dict[str, int]:
        """What `crowded` must hold."""
        found = Counter[str]()
        for s in self.trips:
            if s.trip.riders > 5 and s.bus is not None and s.bus.depot is not None:
                found[s.bus.depot] += s.trip.riders
        return dict(found)


@settings(max_examples=100, deadline=None)
@given(CUTS, st.integers(1, 3))
def test_what_is_joined_is_what_was_valid_at_the_barrier(cuts: list[Cut], partitions: int) -> None:
    done, book = replay(BUSES, script(cuts), partitions=partitions), Book()
    assert len(done.checkpoints) == len(cuts)
    letters = Counter[tuple[str, str]]()
    for cut, checkpoint in zip(cuts, done.checkpoints, strict=True):
        here = book.checkpoint(cut)
        letters += here
        for ack in checkpoint.sealed.acks:
            assert ack.read == ack.applied + ack.filtered + ack.dead_lettered
            assert ack.dead_lettered == sum(n for (uid, _), n in here.items() if uid == ack.uid)
        yards = done.state("yards", checkpoint).items()
        assert {key: (y.n, y.riders, y.seats, y.driver) for key, y in yards} == book.yards()
        lines = done.rows("lines", checkpoint)
        assert {
            key[0]: (row["n"], row["depots"], None if row["last"] is None else Bus(**row["last"]))
            for key, row in lines.items()
        } == book.lines()
        assert {key: c.riders for key, c in done.state("crowded", checkpoint).items()} == book.crowded()
    told = Counter((str(row["uid"]), str(row["reason"])) for uid in BUSES.uids for row in done.dead_letters(uid))
    assert told == letters


def test_a_row_counts_from_its_barrier_on_as_it_does_for_a_process() -> None:
    trip = Trip("a", 1, 1, NOON)
    done = replay(
        BUSES,
        [
            Overwrite("/drivers", []),
            [trip, ("buses", Bus("a", "north", 1), "a")], BARRIER,
            [trip, ("buses", Bus("a", "south", 2), "a"), ("buses", Bus("a", "south", 3), "a")], BARRIER,
            Overwrite("/drivers", [Driver(1, "a", "Ada")]),
            [trip, trip], BARRIER,
            [trip, ("buses", None, "a")], BARRIER,
        ],
    )  # fmt: skip
    yards = done.state("yards")
    assert {key: (y.n, y.seats, y.driver) for key, y in yards.items()} == {
        (1, "north"): (1, 1, None),
        (1, "south"): (3, 9, "Ada"),
    }
    assert [(row["reason"], row["offset"]) for row in done.dead_letters("yards")] == [("null_key", 4)]
    assert done.state("lines")[1].n == 5


@pytest.mark.parametrize("step", ["read", "fold.drivers", "runs.drivers", "fold.yards", "runs.yards", "seal"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_retry_joins_the_version_that_its_plan_froze(step: str, moment: str) -> None:
    world: Script = [Overwrite("/drivers", [Driver(1, "a", "planned")]), [Trip("a", 1, 1, NOON), Bus("a", "north", 1)]]
    done = replay(BUSES, [*world, CRASH.at(step, moment), BARRIER])
    assert done.crashes == 1
    assert done.state("yards")[1, "north"].driver == "planned"


def test_a_state_beyond_its_bound_fails_the_checkpoint_that_joins_it() -> None:
    buses, drivers = BUSES.broadcast
    bounded = replace(BUSES, broadcast=[replace(buses, max_keys=1), drivers])
    rows: Script = [Overwrite("/drivers", []), [Bus("a", "north", 1), Bus("b", "south", 1)]]
    replay(bounded, [*rows, BARRIER])
    with pytest.raises(StateOverflowError, match="broadcast state buses has more than 1 keys"):
        replay(bounded, [*rows, [Trip("a", 1, 1, NOON)], BARRIER])
