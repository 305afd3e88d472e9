"""Sinks and dead letters in a bucket are compacted, read and erased as on a disk."""

import json
from pathlib import Path

import pytest

from tests.support.disk import DiskPipeline
from tests.support.retention import PIPELINE
from tidemark.coordinator.retention.key_erasure import Eraser, ErasureRequest
from tidemark.engine.write.parquet_writer import written_run
from tidemark.model.checkpoint.segments import is_base
from tidemark.model.state.row_compaction import RowPolicy
from tidemark.ports import TableFiles
from tidemark.readers.dead_letter_reader import dead_letters
from tidemark.readers.sink_reader import found_rows, read_sink
from tidemark.storage.s3_folder import S3Folder
from tidemark.tables.key_rewriter import ParquetKeyFiles
from tidemark.tables.s3_table_files import S3TableFiles

pytestmark = pytest.mark.slow


def test_rows_in_a_bucket_are_merged_read_one_by_one_and_erased(folder: S3Folder, tmp_path: Path) -> None:
    line = DiskPipeline(tmp_path, PIPELINE, "payments", partitions=1, bucket=folder)
    for n in range(4):
        bodies = [{"account": "a", "amount": n}, {"account": "b", "amount": n}, {"account": "a"}]
        line.send([(0, json.dumps(body).encode(), n) for body in bodies])
        line.checkpoint()
    before = read_sink(folder, next(line.coordinator.checkpoints()).sinks["teller"]).to_pylist()
    assert len(line.compact_rows(RowPolicy(runs=2))) == 3
    line.send([(0, b'{"account": "b", "amount": 9}', 9)])
    found = line.checkpoint()
    table = found.sinks["teller"]
    assert [is_base(s.path) for s in table.handle] == [True, False]
    assert read_sink(folder, table).to_pylist()[: len(before)] == before
    assert [row["so_far"] for row in found_rows(folder, table, 3, {"account": "a"}, 9)] == [3]
    files: TableFiles = S3TableFiles(folder)
    Eraser(
        coordinator=line.coordinator,
        tables=line.tables,
        files=ParquetKeyFiles(warehouse=folder, footers=written_run),
        logs=files,
        request=ErasureRequest(uid="teller", key=("a",), owner="test"),
        key=("a",),
    ).erase()
    again = line.coordinator.checkpoint(found.id)
    assert {row["account"] for row in read_sink(folder, again.sinks["teller"]).to_pylist()} == {"b"}
    letters = {a.uid: dead_letters(folder, a.dead_letters, 2, 9)["count"] for a in again.sealed.acks}
    assert letters == {"accounts": 1, "teller": 0}
