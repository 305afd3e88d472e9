"""Rows of a sink as readers order them: by path, as Python compares tuples."""

import random

import pyarrow as pa
import pytest

from tidemark.readers.sink_reader import _ordered


@pytest.mark.parametrize("seed", range(5))
def test_rows_are_ordered_by_their_paths(seed: int) -> None:
    chance = random.Random(seed)
    rows = [
        {"_offset": chance.randrange(3), "_path": [chance.randrange(3) for _ in range(chance.randint(0, 3))]}
        for _ in range(40)
    ]
    schema = pa.schema([("_offset", pa.int64()), ("_path", pa.list_(pa.int64()))])
    found = _ordered(pa.Table.from_pylist(rows, schema=schema), ["_offset", "_path"]).to_pylist()
    assert found == sorted(rows, key=lambda r: (r["_offset"], r["_path"])), f"seed {seed}"


def test_a_table_without_rows_stays_one() -> None:
    schema = pa.schema([("_offset", pa.int64()), ("_path", pa.list_(pa.int64()))])
    assert _ordered(schema.empty_table(), ["_offset", "_path"]).num_rows == 0
