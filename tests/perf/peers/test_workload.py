"""The workloads of the comparison are what the page says; their oracle agrees with a plain walk over the records."""

import collections
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.generator import START_MS, Updates, key_text
from benchmarks.peers.places import WrongStateError, check
from benchmarks.workload import WINDOW, Choice, State, Workload, expected_state

SEED = 7


def _batches(workload: Workload, count: int) -> list[Updates]:
    return [workload.load(), *(workload.batch(n, workload.keys + n * workload.fresh) for n in range(count))]


def _walked(batches: list[Updates]) -> dict[str, list[int]]:
    """Record by record, in a dict."""
    held: dict[str, list[int]] = {}
    for batch in batches:
        assert batch.deletes is not None
        for number, amount, deleted in zip(batch.keys, batch.amounts, batch.deletes, strict=True):
            key = key_text(int(number))
            if deleted:
                held.pop(key, None)
                continue
            row = held.setdefault(key, [0, 0, 0])
            at = (START_MS + int(amount) * 1000) * 1000
            row[:] = [row[0] + 1, row[1] + int(amount), max(row[2], at)]
    return held


def _table(state: State) -> pa.Table:
    at = pa.array(state.last_at, pa.timestamp("us", tz="UTC"))
    return pa.table({"key": state.keys, "updates": state.updates, "amount": state.amounts, "last_at": at})


@pytest.mark.parametrize("choice", ["uniform", "zipf", "sliding"])
def test_the_oracle_agrees_with_a_walk_over_the_records(choice: Choice) -> None:
    print(f"seed {SEED}")
    batches = _batches(Workload(300, 200, SEED, choice, deleted=0.1), 6)
    state, held = expected_state(batches), _walked(batches)
    rows = zip(state.keys, state.updates, state.amounts, state.last_at, strict=True)
    assert {str(key): [int(v) for v in values] for key, *values in rows} == held
    assert len(held) < len(np.unique(np.concatenate([b.keys for b in batches])))


def test_the_same_seed_gives_the_same_records_and_shares_hold() -> None:
    workload = Workload(10_000, 20_000, SEED)
    one, again, other = workload.batch(3, 10_000), workload.batch(3, 10_000), workload.batch(4, 10_000)
    assert np.array_equal(one.keys, again.keys)
    assert np.array_equal(one.amounts, again.amounts)
    assert not np.array_equal(one.keys, other.keys)
    assert one.deletes is not None
    assert sorted(one.keys[one.keys >= 10_000]) == list(range(10_000, 11_000)), "5 % of the records have new keys"
    assert 150 < one.deletes.sum() < 250, "1 % are tombstones"


def test_a_zipf_choice_is_skewed_as_its_exponent_says() -> None:
    batch = Workload(1_000, 100_000, SEED, "zipf", new=0).batch(0, 1_000)
    counts = [n for _, n in collections.Counter(batch.keys.tolist()).most_common()]
    assert counts[0] / counts[9] == pytest.approx(10**1.1, rel=0.1)
    assert len(counts) > 900


def test_a_sliding_range_moves_and_overlaps() -> None:
    workload = Workload(1_000, 5_000, SEED, "sliding", new=0)
    touched = [set(workload.batch(n, 1_000).keys.tolist()) for n in range(100)]
    assert all(len(keys) <= 1_000 // WINDOW for keys in touched)
    assert all(0 < len(a & b) < len(a) for a, b in pairwise(touched))
    assert len(set.union(*touched)) == 1_000


@pytest.mark.parametrize("column", ["updates", "amount", "last_at"])
def test_one_wrong_value_voids_a_run(column: str) -> None:
    state = expected_state(_batches(Workload(50, 20, SEED), 2))
    assert check("peer", _table(state), state) == len(state.keys)
    table = _table(state)
    values = table[column].cast(pa.int64()).to_numpy().copy()
    values[len(values) // 2] += 1
    wrong = table.set_column(table.column_names.index(column), column, pa.array(values).cast(table[column].type))
    with pytest.raises(WrongStateError, match=column):
        check("peer", wrong, state)


def test_a_missing_a_doubled_and_a_foreign_row_void_a_run() -> None:
    state = expected_state(_batches(Workload(50, 20, SEED), 2))
    table = _table(state)
    foreign = table.set_column(0, "key", pa.array(["f" * 16, *table["key"].to_pylist()[1:]]))
    for wrong in (table.slice(1), pa.concat_tables([table, table.slice(0, 1)]), foreign):
        with pytest.raises(WrongStateError, match="void"):
            check("peer", wrong, state)
