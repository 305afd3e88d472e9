"""Erasure of a key from every restore point: in dicts, and on real Delta tables read by deltalake and pyarrow (Q9)."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.retention.shelves import DiskShelf, MemoryShelf, Shelf
from tidemark.coordinator.records.tombstones import of_checkpoints
from tidemark.model.checkpoint import Checkpoint
from tidemark.retention import Retention

Make = Callable[[Path], Shelf]
WORLDS = [pytest.param(lambda at: MemoryShelf(), id="memory"), pytest.param(DiskShelf, id="disk")]


def kept(shelf: Shelf) -> list[Checkpoint]:
    """Checkpoints that were not released."""
    gone = {name for name, t in of_checkpoints(shelf.coordinator.objects).items() if t.confirmed}
    return [c for c in shelf.coordinator.timelines.all() if c.plan.name not in gone]


def holding(shelf: Shelf, uid: str, key: str) -> dict[str, int]:
    """Rows of a key per restore point that is kept, read without the product's search."""
    found = {}
    for c in kept(shelf):
        rows = [r for a in c.sealed.acks if a.uid == uid for r in shelf.held(a.handle) if r["account"] == key]
        found[c.plan.name] = len(rows)
    return found


def others(shelf: Shelf, key: str) -> dict[str, dict[str, list[str]]]:
    """All rows that every checkpoint names, but for those of a key."""
    return {
        c.plan.name: {k: [r for r in rows if f"'account': '{key}'" not in r] for k, rows in shelf.rows(c).items()}
        for c in kept(shelf)
    }


@pytest.mark.parametrize("make", WORLDS)
def test_a_key_is_gone_from_every_checkpoint_and_all_else_stays(make: Make, tmp_path: Path) -> None:
    shelf = make(tmp_path)
    for accounts in (["ann", "bob"], ["bob"], ["ann", "cid"]):
        shelf.checkpoint(*accounts)
    shelf.merge("accounts")
    shelf.checkpoint("ann", "bob")
    shelf.checkpoint("bob")
    assert holding(shelf, "accounts", "ann") == {"chk-1": 1, "chk-2": 1, "chk-3": 2, "chk-4": 2, "chk-5": 2}
    before = others(shelf, "ann")
    done = shelf.erase("accounts", "ann")
    assert done.number == 1
    assert sorted(done.restore_points) == [f"chk-{n}" for n in range(1, 6)]
    assert set(holding(shelf, "accounts", "ann").values()) == {0}
    assert others(shelf, "ann") == before
    assert shelf.erase("accounts", "ann").number == 0, "there is nothing left to erase"
    shelf.sweep(None)
    assert others(shelf, "ann") == before
    shelf.checkpoint("ann", "dan")
    assert holding(shelf, "accounts", "ann")["chk-6"] == 1, "later records count"
    shelf.sweep(Retention.keep_last(1))
    assert holding(shelf, "accounts", "ann")["chk-6"] == 1
