"""Computes the rows of `include/pipelines/punctuality.py` with DuckDB from the data set. Imports nothing from Tidemark.

A window, a timer or a wait is over by the frontier: the least, over the four partitions of the flights, of the last
schedule before the cut, and for flights in the weather also the last observation before it.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from devstack.demo.oracle import installed, read_data_set
from devstack.weather.weather_oracle import aware, find_data_set, naive

if TYPE_CHECKING:
    import pandas as pd

_VIEWS = """
    CREATE VIEW weather AS
        SELECT * FROM read_csv('{folder}/weather.csv', nullstr = 'NA', types = {{'time_hour': 'TIMESTAMP'}})
        WHERE time_hour < $cut;
    CREATE VIEW flights AS
        SELECT * REPLACE (make_timestamp(scheduled) AS scheduled) FROM loaded WHERE make_timestamp(scheduled) < $cut;
"""
_FLOWN = "SELECT min(newest) FROM (SELECT max(scheduled) AS newest FROM flights GROUP BY place)"
_BOTH = f"SELECT least(({_FLOWN}), (SELECT max(time_hour) FROM weather))"
QUERIES: Mapping[str, str] = {
    "hourly_departures": f"""
        SELECT origin, hour AS window_start, hour + INTERVAL 1 HOUR AS window_end,
               count(*) AS departures, sum(dep_delay) AS minutes_late, max(dep_delay) AS worst
        FROM (SELECT *, time_bucket(INTERVAL 1 HOUR, scheduled) AS hour FROM flights WHERE dep_delay IS NOT NULL)
        WHERE hour + INTERVAL 1 HOUR <= ({_FLOWN}) GROUP BY origin, hour""",
    "missing_aircraft": f"""
        SELECT tailnum AS tail_number, nth AS flights, scheduled AS seen_at, origin AS airport FROM (
            SELECT *, lead(scheduled) OVER w AS next, row_number() OVER w AS nth
            FROM flights WHERE dep_delay IS NOT NULL AND tailnum IS NOT NULL
            WINDOW w AS (PARTITION BY tailnum ORDER BY scheduled, number)
        )
        WHERE scheduled + INTERVAL 7 DAY <= ({_FLOWN}) AND (next IS NULL OR next >= scheduled + INTERVAL 7 DAY)""",
    "flights_in_weather": f"""
        SELECT f.origin, f.carrier, f.flight, f.scheduled AS scheduled_at, f.dep_delay AS departure_delay,
               w.visib AS visibility, w.wind_speed
        FROM flights f LEFT JOIN weather w
          ON w.origin = f.origin AND w.time_hour = time_bucket(INTERVAL 1 HOUR, f.scheduled)
        WHERE w.origin IS NOT NULL OR f.scheduled < ({_BOTH})""",
}


class PunctualityOracle:
    """Recomputes the rows of every sink.

    Args:
        flights: the data set, as returned by `read_data_set`; None = the one in the installed package.
    """

    def __init__(self, flights: "pd.DataFrame | None" = None) -> None:
        self._flights = read_data_set(installed()) if flights is None else flights

    def expected(self, table: str, cut: datetime) -> list[dict[str, Any]]:
        """Returns the rows of one sink over everything before `cut`.

        Args:
            table: one of `QUERIES`.
            cut: with a time zone.
        """
        import duckdb

        with duckdb.connect() as connection:
            connection.register("loaded", self._flights)
            for view in _VIEWS.format(folder=find_data_set()).split(";"):
                if view.strip():
                    connection.execute(view.replace("$cut", f"TIMESTAMP '{naive(cut)}'"))
            found = connection.execute(QUERIES[table])
            names = [column[0] for column in found.description or ()]
            return [dict(zip(names, map(aware, values), strict=True)) for values in found.fetchall()]
