"""State that is streamed by ranges of key groups: the same rows, files, first keys and hashes as in one piece."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

from tests.golden.answers import PIPELINE, unpack_warehouse
from tidemark.context import Context, open_context
from tidemark.operations import queries, reads
from tidemark.readers import checkpoint_reader, state_reader
from tidemark.readers.checkpoint_reader import read_checkpoint, stream_checkpoint
from tidemark.readers.state_hash import hash_of
from tidemark.settings import load_settings

RELEASE = Path(__file__).resolve().parents[1] / "golden" / "0.1.0"


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Context:
    """Of a warehouse with several operators, runs and compactions."""
    folder = tmp_path_factory.mktemp("golden")
    warehouse = unpack_warehouse(RELEASE, folder)
    return open_context(load_settings(home=str(folder), warehouse=str(warehouse), pipelines=str(folder)))


def _sorted(context: Context, rows: pa.Table, checkpoint: int, uid: str) -> list[dict[str, Any]]:
    schema = reads.schema_of(reads.get_checkpoint(context, PIPELINE, checkpoint), uid)
    return list(rows.sort_by([(k.name, "ascending") for k in schema.keys]).to_pylist(maps_as_pydicts="strict"))


def _states(context: Context) -> list[tuple[int, str]]:
    made = reads.list_checkpoints(context, PIPELINE)
    return [(c.id, uid) for c in made for uid in c.plan.schemas if uid in c.handles]


@pytest.mark.parametrize("at_once", [1, 3, 4_000_000])
def test_a_stream_has_the_rows_of_the_whole(at_once: int, context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_reader, "ROWS_AT_ONCE", at_once)
    monkeypatch.setattr(checkpoint_reader, "_TABLE_ROWS", 2)
    root, several = context.warehouse.root, 0
    assert len(_states(context)) > 10
    for number, uid in _states(context):
        found = reads.get_checkpoint(context, PIPELINE, number)
        whole = read_checkpoint(root, found, uid)
        parts = list(stream_checkpoint(root, found, uid))
        several += len(parts) > 1
        assert all(part.schema == whole.schema for part in parts)
        streamed = pa.concat_tables([whole.slice(0, 0), *parts])
        assert _sorted(context, streamed, number, uid) == _sorted(context, whole, number, uid)
        assert queries.hash_state(context, PIPELINE, uid, number)[1] == hash_of(found.plan.schemas[uid], whole)
        for limit in (1, 2, 1000):
            first = reads.read_state(context, PIPELINE, uid, checkpoint=number, limit=limit)
            assert _sorted(context, first, number, uid) == _sorted(context, whole, number, uid)[:limit]
    assert several > 5 or at_once > 3


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_a_file_has_the_rows_of_the_whole(
    suffix: str, context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_reader, "ROWS_AT_ONCE", 1)
    monkeypatch.setattr(checkpoint_reader, "_TABLE_ROWS", 1)
    for number, uid in _states(context):
        whole = reads.read_state(context, PIPELINE, uid, checkpoint=number)
        path = tmp_path / f"{uid}-{number}.{suffix}"
        assert reads.write_state_file(context, PIPELINE, uid, path, checkpoint=number) == whole.num_rows
        if suffix == "parquet":
            assert _sorted(context, pq.read_table(path), number, uid) == _sorted(context, whole, number, uid)
        else:
            assert csv.read_csv(path).num_rows == whole.num_rows
            assert csv.read_csv(path).column_names == whole.column_names


def test_a_file_that_is_gone_is_the_readers_error_and_leaves_no_file(context: Context, tmp_path: Path) -> None:
    number, uid = _states(context)[0]
    found = reads.get_checkpoint(context, PIPELINE, number)
    root = Path(str(context.warehouse.root))
    (segment, *_) = found.handles[uid]
    (gone, *_) = context.tables.files_of(segment)
    path = root / segment.path / gone.file.path
    kept = path.read_bytes()
    path.unlink()
    try:
        with pytest.raises(Exception, match="is gone") as caught:
            reads.write_state_file(context, PIPELINE, uid, tmp_path / "x.parquet", checkpoint=number)
        assert type(caught.value).__name__ == "StoreError"
        assert not (tmp_path / "x.parquet").exists()
    finally:
        path.write_bytes(kept)
