"""Key groups and typed keys, without Spark (the agreement with Spark is in tests/engine)."""

from datetime import UTC, date, datetime

import pytest

from tests.support.readings import pipeline
from tidemark.errors import UsageError
from tidemark.model.core.types import FieldType
from tidemark.model.schema.key_groups import KeyGroupRange, key_group, key_group_ranges, key_text, typed_key
from tidemark.tables.delta_tables import parse_type


def test_a_key_group_never_changes() -> None:
    assert key_group(["N14228"], 128) == 110
    assert key_group(["EWR", "IAH"], 128) == key_group(["EWR", "IAH"], 128) != key_group(["EWRI", "AH"], 128)


@pytest.mark.parametrize(("groups", "count"), [(128, 1), (128, 3), (128, 128), (7, 4)])
def test_ranges_hold_every_key_group_once_and_are_those_of_the_tasks(groups: int, count: int) -> None:
    ranges = key_group_ranges(groups, count)
    assert [g for r in ranges for g in range(r.first, r.last + 1)] == list(range(groups))
    # Flink's KeyGroupRangeAssignment.computeOperatorIndexForKeyGroup; `engine.tasks.spread` says it in SQL.
    assert all(group * count // groups == n for n, r in enumerate(ranges) for group in (r.first, r.last))
    assert ranges[-1] == KeyGroupRange(ranges[-1].first, groups - 1)


def test_string_forms_do_not_depend_on_a_language() -> None:
    assert [
        key_text(v) for v in (True, -5, "\u00e9", date(2020, 2, 29), datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))
    ] == [
        "true",
        "-5",
        "\u00e9",
        "2020-02-29",
        "1000000",
    ]


def test_texts_become_keys_or_a_usage_error() -> None:
    days = pipeline("t").schemas()["days"]
    assert typed_key(days, ["7", "true"]) == (7, True)
    for texts in (["7"], ["x", "true"], ["7", "perhaps"]):
        with pytest.raises(UsageError):
            typed_key(days, texts)


def test_every_stored_type_has_a_delta_type() -> None:
    inner = FieldType("struct", fields=(("a", FieldType("decimal", digits=12, scale=2)), ("b", FieldType("date"))))
    found = parse_type(FieldType("list", element=inner).sql)
    assert found["elementType"]["fields"][0]["type"] == "decimal(12,2)"
    with pytest.raises(ValueError, match="unknown type"):
        parse_type("SET<STRING>")
