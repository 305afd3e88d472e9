"""A compaction without Spark writes the rows that the twin makes, in files that each hold a range of key groups."""

import errno
import math
import random
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.reading.ledger import UID, Ledger
from tests.support.scale import cases
from tidemark.context import Context
from tidemark.engine.write.parquet_writer import written_run
from tidemark.errors import EngineError, StoreError
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.model.state.compaction import Group, LevelMerge, groups_of
from tidemark.operations import compaction
from tidemark.settings import load_settings
from tidemark.tables.delta_tables import DeltaTables
from tidemark.testing.twin.memory import ManualClock
from tidemark.testing.twin.merge import compact_rows
from tidemark.transfer import level_files
from tidemark.transfer.level_files import merge_levels

FOLDER = "ledger/state/accounts/t1-1/base/accounts.9.w"
amounts = st.dictionaries(
    st.tuples(st.sampled_from(["bank", "other"]), st.integers(0, 40)), st.none() | st.integers(1, 9), min_size=1
)


def groups(ledger: Ledger, found: Checkpoint) -> tuple[Group, ...]:
    tables = DeltaTables(warehouse=str(ledger.root), clock=ManualClock())
    return tuple(groups_of(found.handles[UID], tables.files_of))


def merge_of(ledger: Ledger, found: Checkpoint, *, deepest: bool = True, files: int = 1) -> LevelMerge:
    there = groups(ledger, found)
    return LevelMerge(schema=ledger.schema, groups=there, now=found.now, deepest=deepest, folder=FOLDER, files=files)


def stored(root: Path, merge: LevelMerge) -> list[dict[str, Any]]:
    paths = [root / g.segment.path / f.path for g in merge.groups for f in g.files]
    return [row for path in paths for row in pq.read_table(path, partitioning=None).to_pylist()]


def ordered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["_key_group"], row["bank"], row["number"]))


@settings(max_examples=cases(20), deadline=None)
@given(
    st.lists(amounts, min_size=1, max_size=5), st.booleans(), st.booleans(), st.integers(1, 5), st.sampled_from([3, 99])
)
def test_the_rows_are_those_of_the_twin(
    changes: list[dict[tuple[str, int], int | None]], compacted: bool, deepest: bool, files: int, rows: int
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr(level_files, "RANGE_ROWS", rows)
        ledger = Ledger.at(Path(folder))
        for n, each in enumerate(changes):
            found = ledger.checkpoint(each)
            if compacted and n == 1:
                ledger.compact(9)
        merge = merge_of(ledger, found, deepest=deepest, files=files)
        expected = compact_rows(ledger.schema, stored(ledger.root, merge), found.now, deepest=deepest)
        run = merge_levels(folder, merge, written_run)
        assert run.rows == len(expected)
        there = [(file, pq.read_table(ledger.root / FOLDER / Path(file.path).name)) for file in run.files]
        assert len(there) <= files
        assert ordered([row for _, held in there for row in held.to_pylist()]) == ordered(expected)
        last = -1
        for file, held in sorted(there, key=lambda found: found[0].path):
            assert held.to_pylist() == ordered(held.to_pylist())
            assert held["_key_group"][0].as_py() > last, "no file shares a key group with another"
            last = held["_key_group"][-1].as_py()
            assert f'"_key_group": {last}' in file.stats, "the log has the bounds"


def test_memory_is_bounded_by_rows_and_bytes_of_a_range(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger.at(tmp_path)
    found = ledger.checkpoint({("bank", n): n for n in range(500)})
    merge = merge_of(ledger, found, files=2)
    assert [len(ranges) for ranges in level_files._files(merge)] == [1, 1]
    monkeypatch.setattr(level_files, "RANGE_ROWS", 100)
    assert [len(ranges) for ranges in level_files._files(merge)] == [3, 3]
    monkeypatch.setattr(level_files, "RANGE_ROWS", math.inf)
    monkeypatch.setattr(level_files, "RANGE_BYTES", merge.bytes / 7)
    assert [len(ranges) for ranges in level_files._files(merge)] == [4, 4]
    ranges = [within for ranges in level_files._files(merge) for within in ranges]
    assert (ranges[0].first, ranges[-1].last) == (0, ledger.schema.key_groups - 1)
    assert all(below.last + 1 == above.first for below, above in zip(ranges, ranges[1:], strict=False))
    few = replace(merge, schema=replace(ledger.schema, key_groups=3), files=8)
    assert [len(ranges) for ranges in level_files._files(few)] == [1, 1, 1]


def test_a_row_group_has_at_most_eight_mebibytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger.at(tmp_path)
    chance = random.Random(1)
    found = ledger.checkpoint({("bank", n): chance.randrange(10**6) for n in range(2000)})
    monkeypatch.setattr(level_files, "GROUP_BYTES", 20_000)
    (file,) = merge_levels(str(tmp_path), merge_of(ledger, found), written_run).files
    footer = pq.read_metadata(tmp_path / FOLDER / Path(file.path).name)
    assert footer.num_row_groups > 5
    assert all(footer.row_group(n).total_byte_size <= 20_000 for n in range(footer.num_row_groups))


def test_nothing_to_merge_is_an_empty_run(tmp_path: Path) -> None:
    ledger = Ledger.at(tmp_path)
    merge = replace(merge_of(ledger, ledger.checkpoint({("bank", 1): 1})), groups=())
    assert merge_levels(str(tmp_path), merge, written_run).files == ()
    assert (tmp_path / FOLDER).is_dir(), "the commit makes it durable"
    gone = ledger.checkpoint({("bank", 1): None})
    empty = replace(merge_of(ledger, gone), folder=f"{FOLDER}2")
    assert merge_levels(str(tmp_path), empty, written_run).files == ()
    assert list((tmp_path / f"{FOLDER}2").iterdir()) == []


def test_a_full_disk_and_a_damaged_file_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger.at(tmp_path)
    merge = merge_of(ledger, ledger.checkpoint({("bank", 1): 1}))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(level_files, "fsync", full)
        with pytest.raises(StoreError, match="accounts cannot be compacted: .*No space left on device") as caught:
            merge_levels(str(tmp_path), merge, written_run)
    assert caught.value.next == "check the disk, then run tidemark compact again."
    ((path,),) = [[tmp_path / g.segment.path / f.path for f in g.files] for g in merge.groups]
    path.write_bytes(b"x" * path.stat().st_size)
    with pytest.raises(StoreError, match="accounts cannot be compacted"):
        merge_levels(str(tmp_path), replace(merge, folder=f"{FOLDER}2"), written_run)


@pytest.mark.parametrize("why", ["only Spark can", "too many bytes"])
def test_spark_is_opened_for_what_it_alone_can_merge_and_for_very_large_levels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    ledger = Ledger.at(tmp_path)
    merge = merge_of(ledger, ledger.checkpoint({("bank", 1): 1}))
    context = Context(load_settings(root=tmp_path, warehouse=str(tmp_path), spark="sc://nowhere:1"))
    assert compaction._merge(context, "ledger", merge).rows == 1, "otherwise without Spark, which is away"
    if why == "only Spark can":
        monkeypatch.setattr(OperatorSchema, "is_portable", False)
    else:
        monkeypatch.setattr(compaction, "_IN_PROCESS", merge.bytes - 1)
    with pytest.raises(EngineError, match="nowhere"):
        compaction._merge(context, "ledger", merge)
