"""Compacted sinks and dead letters on real Delta tables, for every reader: merged, evolved, copied, swept."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.row_compaction.emitted_oracle import EmittedOracle, files_of
from tests.support.crashes import CrashAt, Killed
from tests.support.retention import OUTBOX, PIPELINE, Count, DiskRetentionPipeline, Paid, expiring
from tidemark import DeltaSink, Process
from tidemark.coordinator.checkpoints.loop import list_undelivered
from tidemark.declare.retention import Retention
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.row_tables import may_hold, row_tables
from tidemark.model.checkpoint.segments import is_base
from tidemark.model.state.row_compaction import RowPolicy
from tidemark.readers.dead_letter_reader import dead_letters, reasons_at
from tidemark.readers.sink_reader import found_rows, outbox_rows, read_sink

NOW = RowPolicy(runs=2)


@dataclass(frozen=True)
class ToldMore:
    """The output of the process in a later release: a field more, in another place."""

    note: str | None
    account: str
    so_far: int


def tell_more(account: str, payments: Iterator[Paid], count: Count) -> Iterator[ToldMore]:
    """Emits a row per payment, with a note."""
    for _ in payments:
        count.payments += 1
        yield ToldMore("later", account, count.payments)


MORE = replace(
    PIPELINE,
    operators=[
        PIPELINE.operators[0],
        Process("teller", key_by="account", state=Count, function=tell_more, emits=ToldMore, sink=DeltaSink("told")),
    ],
)


def shown(root: Path | str, found: Checkpoint) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """What the product's readers return as of a checkpoint: rows of the sink, and all dead letters of the fold."""
    rows = read_sink(str(root), found.sinks["teller"]).to_pylist()
    emitted = [(r["_checkpoint"], r["account"], r["so_far"], r["_offset"]) for r in rows]
    (ack,) = (a for a in found.sealed.acks if a.uid == "accounts")
    letters = []
    for checkpoint in range(1, found.id + 1):
        page = dead_letters(str(root), ack.dead_letters, checkpoint, 100)
        assert len(page["rows"]) == page["count"]
        letters += [(checkpoint, r["offset"], r["value"]) for r in page["rows"]]
    return sorted(emitted), letters


def test_every_reader_returns_what_was_emitted_as_of_every_checkpoint(tmp_path: Path) -> None:
    retained = DiskRetentionPipeline(tmp_path)
    line = EmittedOracle(retained)
    for number in range(1, 21):
        found = line.pay("a", "", "b")
        if number % 4 == 0:
            with pytest.raises(Killed):
                table = next(t for t in row_tables(found) if t.owner == "told~sinks")
                retained.row_compactor(CrashAt(1 + number // 2 % 9)).compact(found, table, NOW)
        if number % 2 == 0:
            retained.compact_rows(RowPolicy(runs=4))
    assert max(files_of(found).values()) < 10
    for number, expected in line.shown.items():
        assert shown(tmp_path, retained.coordinator.checkpoint(number)) == expected, f"chk-{number}"
    newest = found.sinks["teller"]
    for number in range(1, 21):
        own = [row for row in line.emitted if row[0] == number]
        rows = found_rows(str(tmp_path), newest, number, {}, 100)
        assert [(number, r["account"], r["so_far"], r["_offset"]) for r in rows] == own
        assert [r["_offset"] for r in outbox_rows(str(tmp_path), newest, number)] == [row[3] for row in own]
    ack = next(a for a in found.sealed.acks if a.uid == "accounts")
    ((place, offset),) = [(tp, 1) for tp in found.plan.ranges if tp.partition == 0]
    assert reasons_at(str(tmp_path), ack.dead_letters, 1, [(place, offset)]) == {(place, 1): "missing_field: account"}

    copy = tmp_path / "elsewhere"
    shutil.copytree(tmp_path / "shelf", copy / "shelf")
    shutil.rmtree(tmp_path / "shelf")
    assert shown(copy, found) == line.shown[20], "paths are relative to the warehouse"


def test_a_file_is_read_only_if_it_may_hold_the_checkpoint(tmp_path: Path) -> None:
    retained = DiskRetentionPipeline(tmp_path)
    line = EmittedOracle(retained)
    for _ in range(8):
        line.pay(*"ab" * 5)
    retained.compact_rows(RowPolicy(runs=8, file_bytes=3000))
    found = line.pay("a")
    (base, _) = found.sinks["teller"].handle
    files = retained.tables.files_of(base)
    assert is_base(base.path) and len(files) > 2, "files of the target size"
    for number in range(1, 9):
        read = [f for f in files if may_hold(base, f, number)]
        assert 0 < len(read) < len(files)
        rows = found_rows(str(tmp_path), found.sinks["teller"], number, {}, 100)
        assert len(rows) == 10
    assert shown(tmp_path, found)[0] == sorted(line.shown[found.id][0])


def test_rows_of_earlier_columns_are_merged_into_the_current_ones(tmp_path: Path) -> None:
    retained = DiskRetentionPipeline(tmp_path)
    line = EmittedOracle(retained)
    for _ in range(3):
        line.pay("a")
    retained.compact_rows(NOW)
    before = line.pay("b")
    late = retained.compact_rows(
        RowPolicy.everything()
    )  # of the old columns, adopted by the first plan with the new ones
    assert late
    retained.pipeline = MORE
    for number in range(6):
        found = line.pay("a", "b")
        if number % 2:
            retained.compact_rows(NOW)
    found = line.pay("a")
    handle = found.sinks["teller"].handle
    assert [is_base(s.path) for s in handle] == [True, False] and "~5~base" in handle.segments[0].path
    rows = read_sink(str(tmp_path), found.sinks["teller"]).to_pylist()
    assert {(r["note"], r["_checkpoint"] > before.id) for r in rows} == {(None, False), ("later", True)}
    for number, expected in line.shown.items():
        assert shown(tmp_path, retained.coordinator.checkpoint(number))[0] == expected[0]
    for _ in range(2):
        retained.sweep(Retention.keep_last(1))
    assert shown(tmp_path, found)[0] == line.emitted


def test_a_compaction_of_the_old_columns_that_ends_behind_the_new_ones_is_not_adopted(tmp_path: Path) -> None:
    retained = DiskRetentionPipeline(tmp_path)
    line = EmittedOracle(retained)
    line.pay("a")
    read = line.pay("b")
    retained.pipeline = MORE
    line.pay("a")
    (table,) = (t for t in row_tables(read) if t.owner == "told~sinks")
    assert retained.row_compactor().compact(read, table, NOW) is not None
    found = line.pay("b")
    assert not any(is_base(s.path) for s in found.sinks["teller"].handle), "its columns are not known any more"
    for number, expected in line.shown.items():
        assert shown(tmp_path, retained.coordinator.checkpoint(number))[0] == expected[0]


def test_expired_rows_leave_every_reader_and_then_the_disk(tmp_path: Path) -> None:
    retained = DiskRetentionPipeline(tmp_path, expiring(timedelta(seconds=6)))
    line = EmittedOracle(retained)
    for number in range(1, 31):
        found = line.pay("a", "")
        line.expire(found, number - 6)
        retained.compact_rows(RowPolicy(runs=3))
        assert shown(tmp_path, found) == line.shown[number]
    assert found_rows(str(tmp_path), found.sinks["teller"], 24, {}, 10) == []
    assert len(found_rows(str(tmp_path), found.sinks["teller"], 25, {}, 10)) == 1
    for _ in range(2):
        retained.sweep(Retention.keep_last(1))
    assert shown(tmp_path, found) == line.shown[30]
    there = [p for p in tmp_path.rglob("*.parquet") if "/sinks/" in str(p) and "_delta_log" not in str(p)]
    assert sum(pa.parquet.ParquetFile(p).metadata.num_rows for p in there) <= 18


def test_an_erasure_takes_rows_and_letters_out_of_compacted_files(tmp_path: Path) -> None:
    retained = DiskRetentionPipeline(tmp_path)
    line = EmittedOracle(retained)
    for _ in range(4):
        line.pay("a", "b", "")
    letter = json.dumps({"account": "a", "amount": "much"}).encode()
    (place,) = retained.coordinator.checkpoint(1).plan.ranges
    retained.log.append(place, letter, timestamp_ms=0)
    retained.checkpoint("b")
    retained.compact_rows(NOW)
    found = retained.checkpoint("b")
    held = read_sink(str(tmp_path), found.sinks["teller"]).num_rows
    retained.erase("teller", "a")
    found = retained.coordinator.checkpoint(found.id)
    rows = read_sink(str(tmp_path), found.sinks["teller"])
    assert rows.num_rows == held - 4 and set(rows["account"].to_pylist()) == {"b"}
    pages = {a.uid: dead_letters(str(tmp_path), a.dead_letters, 5, 100) for a in found.sealed.acks}
    assert [r["value"] for r in pages["teller"]["rows"]] == []
    assert [r["value"] for r in pages["accounts"]["rows"]] == [letter]
    assert [dead_letters(str(tmp_path), a.dead_letters, 1, 9)["count"] for a in found.sealed.acks] == [1, 1]
    retained.checkpoint("a", "b")
    retained.compact_rows(NOW)
    for _ in range(2):
        retained.sweep(Retention.keep_last(1))
    after = read_sink(str(tmp_path), retained.checkpoint("b").sinks["teller"]).to_pylist()
    assert [r["so_far"] for r in after if r["account"] == "a"] == [1], "the account began anew"


def test_an_outbox_is_delivered_from_the_manifest_of_each_checkpoint(tmp_path: Path) -> None:
    retained = DiskRetentionPipeline(tmp_path, OUTBOX)
    line = EmittedOracle(retained)
    for _ in range(5):
        line.pay("a", "b")
        retained.compact_rows(NOW)
    due = list_undelivered(retained.coordinator)
    assert [d.checkpoint.id for d in due] == [1, 2, 3, 4, 5]
    assert any(is_base(s.path) for s in due[-1].table.handle)
    offsets = [[r["_offset"] for r in outbox_rows(str(tmp_path), d.table, d.checkpoint.id)] for d in due]
    assert offsets == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]
