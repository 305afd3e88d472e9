"""Values of operator state go through JSON and back, exactly."""

import json
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from tidemark.model.core.canonical import checksum
from tidemark.model.core.json_values import value_from_json, value_to_json
from tidemark.model.core.types import FieldType

PLAIN: dict[str, st.SearchStrategy] = {
    "bool": st.booleans(),
    "int": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(),
    "str": st.text(),
    "bytes": st.binary(),
    "date": st.dates(),
    "timestamp": st.datetimes(timezones=st.just(UTC)).map(lambda at: at.replace(fold=0)),
    "decimal": st.decimals(allow_nan=False, allow_infinity=False, places=2, min_value=-(10**9), max_value=10**9),
}
TYPES = {
    kind: FieldType(kind, nullable=True, digits=12 if kind == "decimal" else 0, scale=2 if kind == "decimal" else 0)
    for kind in PLAIN
}
LIST = FieldType("list", element=TYPES["str"])
STRUCT = FieldType("struct", fields=(*TYPES.items(), ("l", LIST)))
values = st.fixed_dictionaries({k: st.none() | s for k, s in PLAIN.items()} | {"l": st.lists(st.none() | st.text())})


@given(values)
def test_values_of_every_type_come_back_as_they_were(value: dict[str, object]) -> None:
    body = json.loads(json.dumps(value_to_json(STRUCT, value), allow_nan=False))
    assert checksum(body)
    assert repr(value_from_json(STRUCT, body)) == repr({name: value[name] for name, _ in STRUCT.fields})


def test_the_forms_are_those_that_sql_reads() -> None:
    at = datetime(2020, 1, 1, 12, 0, 0, 5, tzinfo=timezone(timedelta(hours=2)))
    assert value_to_json(TYPES["timestamp"], at) == "2020-01-01T10:00:00.000005+00:00"
    assert value_to_json(TYPES["date"], date(2020, 1, 2)) == "2020-01-02"
    assert value_to_json(TYPES["decimal"], Decimal("1E+2")) == "100"
    assert value_to_json(TYPES["bytes"], b"\xff") == "/w=="
    assert value_to_json(TYPES["float"], float("nan")) == "nan"
