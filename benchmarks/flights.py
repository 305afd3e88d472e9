"""A year of real flights as keyed updates, month by month, and an oracle computed from the data set itself.

The key is the tail number, or `(none)` where the data set has none; the amount is the distance in miles; the time is
the scheduled departure. The oracle reads the CSV file independently and takes its times from the data set's UTC hours
instead of converting New York's local time.
"""

import json
import zipfile
import zlib
from dataclasses import dataclass
from datetime import datetime
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv

from benchmarks.workload import State
from devstack.demo.flights_data import NEW_YORK, FlightRecord, find_flights, read_flights

NONE = "(none)"
YEAR = 2013
_MINUTE = 60_000_000
Sent = tuple[int, bytes, bytes, int]


def month_end(month: int) -> datetime:
    """The end of a month in New York's time; January is 1."""
    return datetime(YEAR + month // 12, month % 12 + 1, 1, tzinfo=NEW_YORK)


@dataclass(frozen=True)
class Months:
    """The first months of the year.

    Attributes:
        count: the number of months.
    """

    count: int = 12

    def records(self) -> list[list[Sent]]:
        """The records of each month in order: partition, message key, value and timestamp in milliseconds."""
        ends = [round(month_end(n + 1).timestamp() * 1000) for n in range(self.count)]
        found: list[list[Sent]] = [[] for _ in ends]
        for flight in read_flights():
            month = int(np.searchsorted(ends, flight.timestamp_ms, side="right"))
            if month < self.count:
                found[month].append(_update(flight))
        return found

    def expected_state(self) -> State:
        """The expected state of every key after the last month, computed from the CSV file."""
        types = {"tailnum": pa.string(), "time_hour": pa.timestamp("us", tz="UTC")}
        options = pv.ConvertOptions(
            include_columns=["month", "tailnum", "distance", "time_hour", "minute"],
            column_types=types,
            null_values=["NA"],
            strings_can_be_null=True,
        )
        with zipfile.ZipFile(find_flights()) as archive, archive.open("flights.csv") as member:
            table = pv.read_csv(member, convert_options=options)
        table = table.filter(pc.less_equal(table["month"], self.count))
        texts = np.array(pc.fill_null(table["tailnum"], NONE).to_pylist())
        keys, places = np.unique(texts, return_inverse=True)
        at = table["time_hour"].cast(pa.int64()).to_numpy() + table["minute"].to_numpy() * _MINUTE
        amounts, last = np.zeros(len(keys), np.int64), np.zeros(len(keys), np.int64)
        np.add.at(amounts, places, table["distance"].to_numpy())
        np.maximum.at(last, places, at)
        return State(keys, np.bincount(places), amounts, last)


def _update(flight: FlightRecord, partitions: int = 4) -> Sent:
    value = cast(dict[str, object], json.loads(flight.value))
    key = flight.key or NONE.encode()
    update = f'{{"key":"{key.decode()}","amount":{value["distance"]},"at":"{value["scheduled_at"]}"}}'
    return zlib.crc32(key) % partitions, key, update.encode(), flight.timestamp_ms
