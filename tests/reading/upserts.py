"""An oracle of upsert diffs: brute force by pandas over two resolved states, read in full."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

Rows = Iterable[Mapping[str, Any]]


def check_upserts(found: Rows, states: Iterable[Rows], keys: Sequence[str]) -> None:
    """A diff says neither too little nor anything wrong; what it may add are keys whose value is the same.

    Args:
        found: rows of a diff, with `key` and `change`.
        states: the earlier state and the later one, a row per key.
        keys: the key columns.
    """
    before, after = (_frame(state, keys) for state in states)
    both = before.merge(after, on="_key", how="outer", suffixes=("_before", "_after"))
    was, is_now = both["_row_before"].notna(), both["_row_after"].notna()
    differs = is_now & (both["_row_before"] != both["_row_after"])
    told = pd.DataFrame([{"_key": repr(tuple(row["key"].values())), "change": row["change"]} for row in found])
    told = told if len(told) else pd.DataFrame({"_key": [], "change": []})
    assert told["_key"].is_unique
    assert set(told["change"]) <= {"upserted", "deleted"}
    upserted, deleted = (set(told["_key"][told["change"] == change]) for change in ("upserted", "deleted"))
    assert set(both["_key"][differs]) <= upserted, "every key with another value is upserted"
    assert upserted <= set(both["_key"][is_now]), "every upserted key is there afterwards"
    assert set(both["_key"][was & ~is_now]) <= deleted, "every key that is gone is deleted"
    assert not deleted & set(both["_key"][is_now]), "no deleted key is there afterwards"


def _frame(state: Rows, keys: Sequence[str]) -> pd.DataFrame:
    rows = [
        (repr(tuple(row[k] for k in keys)), repr({k: v for k, v in row.items() if k not in keys and k != "_changed"}))
        for row in state
    ]
    return pd.DataFrame(rows, columns=["_key", "_row"], dtype=object)
