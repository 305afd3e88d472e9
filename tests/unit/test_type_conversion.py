"""Old values in wider types: DuckDB and the twin give the same, and it is what the declaration says."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.support.wider_types import CASES, NEW, ODD, OLD
from tidemark.engine.process.arrow_values import arrow_type
from tidemark.model.core.types import FieldType
from tidemark.model.portable_sql.dialects import DUCKDB
from tidemark.model.state.evolution import widens
from tidemark.readers.duckdb_session import open_query_runner
from tidemark.sql.type_conversion import converted_sql, converted_value


@pytest.mark.parametrize(("old", "new", "values"), CASES)
def test_duckdb_reads_old_values_as_the_twin_does(old: FieldType, new: FieldType, values: list[Any]) -> None:
    assert widens(old, new)
    rows = pa.table({"n": range(len(values)), "v": pa.array(values, arrow_type(old))})
    value = converted_sql('"v"', old, new, DUCKDB)
    sql = f"SELECT {value} AS v FROM rows ORDER BY n"
    with open_query_runner() as ask:
        found = ask(sql, rows=rows)
    assert found["v"].to_pylist(maps_as_pydicts="strict") == [converted_value(value, old, new) for value in values]
    assert found["v"].type == arrow_type(new)


def test_an_added_field_has_its_default_or_null() -> None:
    found = converted_value({"a": Decimal("1.50"), "b": [{"c": 1}]}, OLD, NEW)
    assert list(found) == ["z", "b", "a", "tags", "empty"]
    assert (found["z"], found["tags"], found["empty"]) == (True, ["x", "y z"], [])
    assert found["b"] == [
        {
            "c": 1,
            "text": ODD,
            "raw": b"hi",
            "at": datetime(2020, 1, 1, tzinfo=UTC),
            "day": date(2020, 2, 29),
            "share": 0.5,
            "price": Decimal("1.50"),
            "none": None,
        }
    ]
