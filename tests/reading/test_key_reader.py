"""Workers find the newest rows of some keys, and of keys whose rows meet a condition, in a range of key groups."""

import tempfile
from collections import defaultdict
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.reading.ledger import UID, Ledger
from tests.support.scale import cases
from tidemark.model.core.ttl import Now
from tidemark.model.schema.key_groups import group_of, key_group_ranges
from tidemark.model.state.compaction import groups_of
from tidemark.readers.state_reader import key_reader
from tidemark.tables.delta_tables import DeltaTables
from tidemark.testing.twin.memory import ManualClock
from tidemark.testing.twin.merge import compact_rows

KEYS = pa.schema([("bank", pa.string()), ("number", pa.int64())])
banks, numbers = st.sampled_from(["bank", "other"]), st.integers(0, 12)
amounts = st.dictionaries(st.tuples(banks, numbers), st.none() | st.integers(1, 9), min_size=1)


@settings(max_examples=cases(20), deadline=None)
@given(st.lists(amounts, min_size=1, max_size=4), st.lists(st.tuples(banks, numbers)), st.integers(1, 3), st.booleans())
def test_rows_of_given_keys_and_of_those_that_meet_the_condition(
    changes: list[dict[tuple[str, int], int | None]], given: list[tuple[str, int]], tasks: int, conditioned: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger.at(Path(folder))
        for each in changes:
            found = ledger.checkpoint(each)
        tables = DeltaTables(warehouse=folder, clock=ManualClock())
        groups = groups_of(found.handles[UID], tables.files_of)
        paths = [ledger.root / g.segment.path / f.path for g in groups for f in g.files]
        stored = [row for path in paths for row in pq.read_table(path, partitioning=None).to_pylist()]
        wanted = defaultdict[str, set[int]](set)
        for bank, number in given:
            wanted[bank].add(number)
        for row in stored:
            if conditioned and row["total"] is not None and row["total"] > 7:
                wanted[row["bank"]].add(row["number"])
        newest = compact_rows(ledger.schema, stored, Now(), deepest=False)
        expected = [row for row in newest if row["_kind"] != "tombstone" and row["number"] in wanted[row["bank"]]]

        read = key_reader(folder, ledger.schema, groups, "total > 7" if conditioned else "")
        got = []
        for within in key_group_ranges(ledger.schema.key_groups, tasks):
            mine = [key for key in given if within.first <= group_of(ledger.schema, key) <= within.last]
            columns = [pa.array([key[n] for key in mine], field.type) for n, field in enumerate(KEYS)]
            got += read(within, pa.table(columns, schema=KEYS)).to_pylist()
        order = lambda row: (row["bank"], row["number"])  # noqa: E731
        assert sorted(got, key=order) == sorted(expected, key=order)
