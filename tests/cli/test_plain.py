"""Rows of Arrow tables as Python values, without pandas: compared with those of pyarrow, which imports it."""

import subprocess
import sys
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Literal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.cli.plain import python_rows

TIMES = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC))
ZONE = timezone(timedelta(hours=2))
SOME = datetime(2013, 2, 1, 5, 0, 0, 123456, tzinfo=UTC)


@settings(deadline=None)  # the first call imports pandas
@given(st.lists(st.lists(st.none() | TIMES, max_size=3), max_size=3))
def test_times_are_those_of_pyarrow(chunks: list[list[datetime | None]]) -> None:
    kind = pa.timestamp("us", "UTC")
    column = pa.chunked_array([pa.array(chunk, kind) for chunk in chunks], kind)
    found = [row["at"] for row in python_rows(pa.table({"at": column}))]
    assert found == column.to_pylist() == [at for chunk in chunks for at in chunk]
    assert all(at is None or at.utcoffset() == timedelta() for at in found)


@pytest.mark.parametrize("maps", [None, "strict"])
def test_rows_are_those_of_pyarrow(maps: Literal["strict"] | None) -> None:
    columns = {
        "n": pa.array([1, None, 3]),
        "text": pa.array(["a", "b", None]),
        "cut": pa.array([SOME, None, SOME], pa.timestamp("us", "UTC")).slice(0, 3),
        "elsewhere": pa.array([SOME.astimezone(ZONE), None, SOME], pa.timestamp("us", "Europe/Berlin")),
        "nanos": pa.array([SOME, None, SOME], pa.timestamp("ns", "UTC")),
        "local": pa.array([datetime(2013, 2, 1, 5), None, None], pa.timestamp("us")),
        "day": pa.array([date(2013, 2, 1), None, None]),
        "price": pa.array([Decimal("1.50"), None, Decimal("2.00")]),
        "times": pa.array([[SOME, None], [], None], pa.list_(pa.timestamp("us", "UTC"))),
        "by_name": pa.array([[("a", 1)], [], None], pa.map_(pa.string(), pa.int64())),
        "both": pa.array([{"at": SOME}, None, None], pa.struct({"at": pa.timestamp("us", "UTC")})),
    }  # fmt: skip
    table = pa.table(columns)
    for part in (table, table.slice(1, 1), table.slice(0, 0), pa.concat_tables([table.slice(2), table])):
        assert python_rows(part, maps=maps) == part.to_pylist(maps_as_pydicts=maps)


def test_times_of_a_table_import_no_pandas() -> None:
    script = (
        "import sys, duckdb\n"
        "from tidemark.cli.plain import python_rows\n"
        "rows = duckdb.sql(\"select timestamptz '2013-02-01 05:00:00+00' as at, 'a' as k\").to_arrow_table()\n"
        "assert python_rows(rows)[0]['at'].isoformat() == '2013-02-01T05:00:00+00:00'\n"
        "assert 'pandas' not in sys.modules\n"
        "rows.to_pylist()\n"
        "assert 'pandas' in sys.modules, 'pyarrow no longer imports pandas: python_rows is superfluous'\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
