"""The rows of a sink on two timelines, compared by id: equal to a comparison in plain Python."""

import math
import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.model.checkpoint.sinks import ROW_ID
from tidemark.readers.sink_changes import change_of_rows
from tidemark.tables.delta_tables import arrow_schema

IDS = [name for name, _ in ROW_ID]
SHARED = [("n", "BIGINT"), ("x", "DOUBLE"), ("names", "ARRAY<STRING>")]
SCHEMA = arrow_schema([*SHARED, ("own", "STRING"), *ROW_ID])


def rows(chance: random.Random, own: str) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Rows by id; `own` differs on both sides, and is not compared."""
    found = {}
    for _ in range(chance.randrange(12)):
        place = ("s", "windows/s", 0, chance.randrange(4), (chance.randrange(2),))
        x = chance.choice([None, 1.0, 1.0 + 1e-13, 1.1, 0.0])
        fields = {"n": chance.choice([None, 1, 2]), "x": x, "names": chance.choice([None, [], ["a"], ["a", "b"]])}
        found[place] = {**fields, "own": own, **dict(zip(IDS, (*place[:4], list(place[4])), strict=True))}
    return found


def same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9)
    return bool(one == other)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_rows_are_compared_by_id_and_by_the_columns_of_both_sides(seed: int) -> None:
    chance = random.Random(seed)
    before, after = rows(chance, "live"), rows(chance, "fork")
    for place in before.keys() & after.keys():
        if chance.random() < 0.5:
            after[place] = {**before[place], "own": "fork"}
    expected: dict[str, list[Any]] = {"inserted": [], "deleted": [], "changed": [], "equal": []}
    for place in sorted(before.keys() | after.keys()):
        one, other = before.get(place), after.get(place)
        if one is None or other is None:
            expected["inserted" if one is None else "deleted"].append(place)
        else:
            is_same = all(same(one[name], other[name]) for name, _ in SHARED)
            expected["equal" if is_same else "changed"].append(place)
    tables = [SCHEMA.empty_table().from_pylist([*side.values()], schema=SCHEMA) for side in (before, after)]
    found = change_of_rows("s", "sink", SHARED, *tables)
    counts = {name: getattr(found, name) for name in expected}
    assert counts == {name: len(places) for name, places in expected.items()}
    shown = sorted([*expected["inserted"], *expected["deleted"], *expected["changed"]])[:20]
    assert len(found.examples) == len(shown)
    for place, example, differing in zip(shown, found.examples, found.differing, strict=True):
        both = place in before and place in after
        assert list(differing) == [n for n, _ in SHARED if both and not same(before[place][n], after[place][n])]
        for side, held in (("before", before), ("after", after)):
            row = held.get(place)
            assert example[side] == (None if row is None else {name: row[name] for name, _ in SHARED})
