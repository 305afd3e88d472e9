"""A whole read merges only keys that have newer rows: the answer is that of merging all, and of a plain dict."""

import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.reading.ledger import UID, Ledger
from tests.support.key_group_ranges import read_by_ranges
from tidemark.model.state.compaction import groups_of, is_top_light
from tidemark.readers import state_reader
from tidemark.tables.delta_tables import DeltaTables
from tidemark.testing.twin.memory import ManualClock

ACCOUNTS = [("bank", n) for n in range(60)]
amounts = st.dictionaries(
    st.tuples(st.sampled_from(["bank", "other"]), st.integers(0, 70)), st.none() | st.integers(1, 9), max_size=4
)


@settings(max_examples=12, deadline=None)
@given(st.lists(amounts, max_size=3), st.booleans(), st.integers(0, 99))
@example([{("bank", 1): None, ("other", 1): 3}, {("bank", 1): 4}], True, 0)
def test_only_touched_keys_are_merged_and_the_answer_is_the_same(
    newer: list[dict[tuple[str, int], int | None]], compacted: bool, seed: int
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        ledger = Ledger.at(Path(folder))
        last = ledger.checkpoint({key: random.Random(seed + key[1]).randint(1, 9) for key in ACCOUNTS})
        if compacted:
            ledger.compact(9)
        for each in newer:
            last = ledger.checkpoint(each)
        tables = DeltaTables(warehouse=folder, clock=ManualClock())
        split = is_top_light(ledger.schema, groups_of(last.handles[UID], tables.files_of))
        assert split == any(newer)
        found = state_reader.read_state(folder, ledger.schema, last.handles[UID], last.now)
        patched.setattr(state_reader, "is_top_light", lambda schema, groups: False)
        plain = state_reader.read_state(folder, ledger.schema, last.handles[UID], last.now)
        order = [("bank", "ascending"), ("number", "ascending")]
        assert found.sort_by(order).equals(plain.sort_by(order))
        told = {(r["bank"], r["number"]): (r["total"], r["_changed"]) for r in found.to_pylist()}
        assert told == ledger.book
        patched.undo()
        for tasks in (1, 3):
            assert (
                read_by_ranges(folder, ledger.schema, last.handles[UID], last.now, tasks)
                .sort_by(order)
                .equals(plain.sort_by(order))
            )
