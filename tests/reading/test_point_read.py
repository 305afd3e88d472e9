"""A look-up of one key opens what can hold it: rows lie by key group, and statistics say where."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.reading.ledger import UID, Ledger
from tidemark.errors import StoreError
from tidemark.model.schema.key_groups import key_group
from tidemark.readers.checkpoint_reader import read_checkpoint
from tidemark.readers.state_reader import read_state

KEYS = [("bank", n) for n in range(400)]


def _spoil(path: Path, group: int) -> tuple[int, int]:
    """Overwrites the data of all row groups that hold no key of the group; how many of how many."""
    metadata = pq.ParquetFile(path).metadata
    raw, spoiled = bytearray(path.read_bytes()), 0
    for number in range(metadata.num_row_groups):
        row_group = metadata.row_group(number)
        chunks = [row_group.column(c) for c in range(row_group.num_columns)]
        held = next(c.statistics for c in chunks if c.path_in_schema == "_key_group")
        if held.min <= group <= held.max:
            continue
        spoiled += 1
        for chunk in chunks:
            start = chunk.dictionary_page_offset or chunk.data_page_offset
            raw[start : start + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
    path.write_bytes(raw)
    return spoiled, metadata.num_row_groups


def test_a_look_up_reads_no_row_group_that_cannot_hold_its_key(tmp_path: Path) -> None:
    ledger = Ledger.at(tmp_path)
    ledger.checkpoint({key: key[1] for key in KEYS})
    last = ledger.checkpoint({key: 1000 for key in KEYS[::7]})
    key = KEYS[7]
    files = sorted((tmp_path / "ledger/state").rglob("*.parquet"))
    assert len(files) == 2
    for path in files:
        spoiled, row_groups = _spoil(path, key_group(key, ledger.schema.key_groups))
        assert spoiled >= row_groups - 2, "rows are sorted by key group, so that one or two hold the key"
    found = read_state(str(tmp_path), ledger.schema, last.handles[UID], last.now, key=key)
    assert [(r["number"], r["total"]) for r in found.to_pylist()] == [(7, 1007)]
    with pytest.raises(StoreError):
        read_checkpoint(str(tmp_path), last, UID)
