"""A diff equals a comparison of everything, whatever was compacted, closed and branched between, and reads less."""

import os
import random
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.reading.ledger import UID, Book, Ledger
from tests.reading.upserts import check_upserts
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.readers.checkpoint_reader import read_checkpoint
from tidemark.readers.state_diff import Comparison, Detail, Diff

SEED = int(os.environ.get("TIDEMARK_TEST_SEED", "20241121"))
KEYS = [(bank, n) for bank in ("north", "süd", "") for n in (-1, 0, 7, 2**40)]
WIDE = 100_000


def _diff(ledger: Ledger, sides: tuple[Checkpoint, Checkpoint], detail: Detail, **options: Any) -> Diff:
    ancestor = options.pop("ancestor", min(c.id for c in sides))
    compared = Comparison(warehouse=str(ledger.root), uid=UID, before=sides[0], after=sides[1], ancestor=ancestor)
    return compared.diff(detail, **options)


def _expected(before: Book, after: Book) -> dict[tuple[str, int], str]:
    found = {}
    for key in before.keys() | after.keys():
        if key not in before:
            found[key] = "inserted"
        elif key not in after:
            found[key] = "deleted"
        elif before[key] != after[key]:
            found[key] = "updated"
    return found


def _key(row: dict[str, Any]) -> tuple[str, int]:
    return (row["key"]["bank"], row["key"]["number"])


def _check(ledger: Ledger, one: tuple[Checkpoint, Book], other: tuple[Checkpoint, Book], ancestor: int) -> None:
    sides, (before, after) = (one[0], other[0]), (one[1], other[1])
    expected = _expected(before, after)
    changes = _diff(ledger, sides, Detail.CHANGES, ancestor=ancestor)
    assert {_key(r): r["change"] for r in changes.rows.to_pylist()} == expected
    assert sum(changes.counts.values()) == len(expected)
    values = _diff(ledger, sides, Detail.VALUES, ancestor=ancestor).rows.to_pylist()
    assert {_key(r): r["change"] for r in values} == expected
    for row in values:
        for side, book in (("before", before), ("after", after)):
            told = row[side] and (row[side]["total"], row[side]["_changed"])
            assert told == book.get(_key(row))
    upserts = _diff(ledger, sides, Detail.UPSERTS, ancestor=ancestor)
    resolved = (read_checkpoint(str(ledger.root), side, UID).to_pylist() for side in sides)
    check_upserts(upserts.rows.to_pylist(), resolved, keys=("bank", "number"))
    keys = {_key(r): r["change"] for r in upserts.rows.to_pylist()}
    assert {k for k, change in keys.items() if change == "upserted"} == {k for k in expected if k in after}
    # What came and went between the two is reported as deleted, too, because the older state is not read.
    assert {k for k in expected if k not in after} <= {k for k, change in keys.items() if change == "deleted"}
    assert sum(upserts.counts.values()) == len(keys)
    old = _diff(ledger, sides, Detail.KEYS, ancestor=ancestor)
    assert old.bytes_read == upserts.bytes_read
    assert {_key(r): r["change"].replace("changed", "upserted") for r in old.rows.to_pylist()} == keys


def _grow(ledger: Ledger, chance: random.Random, count: int) -> None:
    for _ in range(count):
        touched = chance.sample(KEYS, chance.choice((0, 1, 4)))
        ledger.checkpoint({k: None if chance.random() < 0.3 else chance.randrange(-50, 50) for k in touched})
        if chance.random() < 0.5:
            ledger.compact(chance.choice((0, 2, 2**40)))


@pytest.mark.parametrize("seed", range(SEED, SEED + 4))
def test_a_diff_equals_a_comparison_of_everything(seed: int, tmp_path: Path) -> None:
    print(f"seed {seed}; repeat with TIDEMARK_TEST_SEED={seed}")
    chance = random.Random(seed)
    ledger = Ledger.at(tmp_path)
    _grow(ledger, chance, 7)
    for one, other in chance.sample([(a, b) for a in ledger.made for b in ledger.made], 4):
        _check(ledger, ledger.made[one], ledger.made[other], min(one, other))
    for checkpoint, book in ledger.made.values():
        rows = read_checkpoint(str(tmp_path), checkpoint, UID).to_pylist()
        assert {(r["bank"], r["number"]): (r["total"], r["_changed"]) for r in rows} == book


@pytest.mark.parametrize("seed", range(SEED, SEED + 2))
def test_branches_are_compared_from_their_common_ancestor(seed: int, tmp_path: Path) -> None:
    print(f"seed {seed}; repeat with TIDEMARK_TEST_SEED={seed}")
    chance = random.Random(seed)
    ledger = Ledger.at(tmp_path)
    _grow(ledger, chance, 3)
    trunk = max(ledger.made)
    other = ledger.branch("t2")
    _grow(ledger, chance, 3)
    _grow(other, chance, 3)
    _check(ledger, ledger.made[max(ledger.made)], other.made[max(other.made)], trunk)
    _check(ledger, other.made[max(other.made)], ledger.made[max(ledger.made)], trunk)


def test_without_a_known_ancestor_everything_is_compared(tmp_path: Path) -> None:
    ledger = Ledger.at(tmp_path)
    ledger.checkpoint({("a", 1): 5, ("a", 2): 6})
    ledger.checkpoint({("a", 2): 1, ("b", 1): None})
    one, other = ledger.made.values()
    counts = _diff(ledger, (one[0], other[0]), Detail.CHANGES, ancestor=0).counts
    assert counts == {"updated": 2}, "keys that nothing touched count as updated: the price of a lost ancestor"


def test_an_account_that_was_opened_and_closed_between_did_not_change(tmp_path: Path) -> None:
    ledger = Ledger.at(tmp_path)
    first = ledger.checkpoint({("a", 1): 5})
    ledger.checkpoint({("b", 1): 7})
    last = ledger.checkpoint({("b", 1): None})
    found = _diff(ledger, (first, last), Detail.CHANGES)
    assert (found.rows.num_rows, found.counts) == (0, {})
    upserts = _diff(ledger, (first, last), Detail.UPSERTS)
    assert upserts.counts == {"deleted": 1}, "an upsert diff does not read whether it was there before"


def test_a_value_that_changed_and_came_back_is_upserted(tmp_path: Path) -> None:
    ledger = Ledger.at(tmp_path)
    first = ledger.checkpoint({("a", 1): 5, ("a", 2): 1})
    ledger.checkpoint({("a", 1): 7})
    last = ledger.checkpoint({("a", 1): -7})
    assert _diff(ledger, (first, last), Detail.UPSERTS).counts == {"upserted": 1}
    assert _diff(ledger, (first, last), Detail.CHANGES).counts == {"updated": 1}


def test_the_limit_cuts_rows_and_not_counts(tmp_path: Path) -> None:
    ledger = Ledger.at(tmp_path)
    first = ledger.checkpoint({})
    last = ledger.checkpoint(dict.fromkeys(KEYS, 1))
    found = _diff(ledger, (first, last), Detail.VALUES, limit=3)
    assert [_key(r) for r in found.rows.to_pylist()] == sorted(KEYS)[:3]
    assert found.counts == {"inserted": len(KEYS)}


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    """100,000 accounts, then three checkpoints that touch 1 % of them in all, a tenth of these new."""
    chance = random.Random(SEED)
    ledger = Ledger.at(tmp_path_factory.mktemp("wide"), row_group=4096)
    keys = [(f"bank-{chance.randrange(1000):04d}", n) for n in range(WIDE)]
    ledger.checkpoint({key: chance.randrange(10**9) for key in keys})
    touched = [*chance.sample(keys, WIDE // 100 - WIDE // 1000), *((f"new-{n}", n) for n in range(WIDE // 1000))]
    chance.shuffle(touched)
    for part in range(3):
        ledger.checkpoint({key: chance.randrange(10**9) for key in touched[part::3]})
    return ledger


def _columns(ledger: Ledger, names: tuple[str, ...]) -> int:
    """Compressed bytes of columns in the big file."""
    metadata = pq.ParquetFile(next(ledger.root.rglob("runs/1.1/*.parquet"))).metadata
    groups = [metadata.row_group(n) for n in range(metadata.num_row_groups)]
    chunks = [g.column(c) for g in groups for c in range(g.num_columns)]
    return sum(c.total_compressed_size for c in chunks if c.path_in_schema in names)


def test_upserts_at_one_percent_read_less_than_a_twentieth(wide: Ledger) -> None:
    (first, _), *_, (last, _) = wide.made.values()
    found = _diff(wide, (first, last), Detail.UPSERTS)
    assert found.counts == {"upserted": WIDE // 100}
    assert found.bytes_total == last.handles[UID].bytes
    assert found.bytes_read is not None
    share = found.bytes_read / found.bytes_total
    print(f"upserts: {found.bytes_read} of {found.bytes_total} bytes, {share:.2%}")
    assert share <= 0.05


def test_deletes_at_one_percent_are_decided_by_the_newer_rows_too(wide: Ledger) -> None:
    (first, before), *_ = wide.made.values()
    branch = wide.branch("t2")
    closed = [key for n, key in enumerate(before) if n % (WIDE // 500) == 0]
    branch.checkpoint(dict.fromkeys(closed))
    last = branch.checkpoint({closed[0]: 1})
    found = _diff(wide, (first, last), Detail.UPSERTS)
    changed = {key for key, held in branch.book.items() if before.get(key) != held}
    assert found.counts == {"upserted": len(changed), "deleted": len(closed) - 1}
    assert found.bytes_read is not None
    share = found.bytes_read / found.bytes_total
    print(f"with {len(closed)} deletes: {found.bytes_read} of {found.bytes_total} bytes, {share:.2%}")
    assert share <= 0.05


def test_inserted_and_updated_keys_are_told_apart_by_the_key_columns(wide: Ledger) -> None:
    (first, _), *_, (last, _) = wide.made.values()
    found = _diff(wide, (first, last), Detail.CHANGES)
    assert found.counts == {"inserted": WIDE // 1000, "updated": WIDE // 100 - WIDE // 1000}
    newer = last.handles[UID].bytes - first.handles[UID].bytes
    keys = _columns(wide, ("bank", "number", "_kind"))
    print(f"changes: {found.bytes_read} bytes; key columns {keys}, newer runs {newer}")
    assert found.bytes_read is not None
    assert found.bytes_read <= keys + newer + 2 * 2**16, "the older state gives its key columns and one footer"


def test_values_cost_the_key_columns_and_the_row_groups_that_hold_them(wide: Ledger) -> None:
    (first, before), *_, (last, after) = wide.made.values()
    found = _diff(wide, (first, last), Detail.VALUES, limit=5)
    groups = pq.ParquetFile(next(wide.root.rglob("runs/1.1/*.parquet"))).metadata
    one = max(groups.row_group(n).total_byte_size for n in range(groups.num_row_groups))
    newer = last.handles[UID].bytes - first.handles[UID].bytes
    keys = _columns(wide, ("bank", "number", "_kind"))
    print(f"values: {found.bytes_read} of {found.bytes_total} bytes")
    assert found.bytes_read <= keys + 5 * one + 4 * newer + 3 * 2**16
    for row in found.rows.to_pylist():
        told = [row[side] and (row[side]["total"], row[side]["_changed"]) for side in ("before", "after")]
        assert told == [before.get(_key(row)), after[_key(row)]]


def test_across_a_full_compaction_the_answer_is_the_same_and_the_cost_is_told(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    ledger = Ledger.at(tmp_path, row_group=256)
    first = ledger.checkpoint({("a", n): chance.randrange(100) for n in range(3000)})
    ledger.checkpoint({("a", n): None if n % 2 else 1 for n in range(30)})
    ledger.compact(2**40)
    last = ledger.checkpoint({("a", 5000): 1})
    found = _diff(ledger, (first, last), Detail.CHANGES)
    assert found.counts == {"updated": 15, "deleted": 15, "inserted": 1}
    upserts = _diff(ledger, (first, last), Detail.UPSERTS)
    assert upserts.counts == {"upserted": 16, "deleted": 15}, "no tombstone is left: the keys of both sides say it"
    assert found.bytes_read is not None
    assert found.bytes_read > 0.3 * found.bytes_total
