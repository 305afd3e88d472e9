"""`tidemark export`: a folder that needs neither the warehouse nor any code of ours, whole or not there at all."""

import hashlib
import json
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

from tests.copies.transfer_pipeline import SEED, UIDS, TransferPipeline, transfer_pipeline
from tests.support.cli import Command
from tidemark.coordinator.recovery.savepoints import Savepoints
from tidemark.model.checkpoint.codec import to_json
from tidemark.model.retention.savepoint import SavepointRequest
from tidemark.operations import reads
from tidemark.storage.parquet_folder import ParquetFolder
from tidemark.transfer import export_folder
from tidemark.transfer.export_folder import FolderExport


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> TransferPipeline:
    """Five checkpoints, a compaction behind the second, a savepoint of the third."""
    print(f"seed {SEED}; repeat with TIDEMARK_TEST_SEED={SEED}")
    found = transfer_pipeline(tmp_path_factory.mktemp("made")).grown(5, compacted=2)
    request = SavepointRequest(name="june", owner="ann", origin="test", checkpoint=3)
    Savepoints(found.line.coordinator).create(request)
    return found


@pytest.fixture(scope="module")
def folder(made: TransferPipeline, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export of the savepoint, moved since, without the warehouse's name in it."""
    first = tmp_path_factory.mktemp("exports") / "first"
    made.tidemark("export", "market", "--savepoint", "june", "--to", str(first)).ok()
    return first.rename(first.with_name("moved"))


def _named(folder: Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads((folder / "export.json").read_text())["body"]
    return told


def _files(folder: Path) -> list[dict[str, Any]]:
    states = _named(folder)["states"].values()
    return [f for s in states for f in (*s["stored"], s["resolved"], *s["queries"].values())]


def test_every_file_of_the_folder_is_named_with_its_sha256_and_a_relative_path(
    made: TransferPipeline, folder: Path
) -> None:
    named = {f["path"]: f["sha256"] for f in _files(folder)}
    there = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()} - {"export.json"}
    assert set(named) == there
    for path, sha256 in named.items():
        assert hashlib.sha256((folder / path).read_bytes()).hexdigest() == sha256, path
    for text in (*folder.rglob("*.sql"), folder / "export.json"):
        assert str(made.tidemark.warehouse) not in text.read_text(), "an export can be moved"


@pytest.mark.parametrize("uid", UIDS)
def test_the_resolved_rows_and_what_the_query_makes_of_the_stored_ones_are_the_state(
    made: TransferPipeline, folder: Path, uid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By DuckDB alone, in the folder: neither the warehouse nor a line of ours is there."""
    wanted = made.tidemark("state", "sql", "market", f"FROM {uid}_at(3) ORDER BY ALL", "--json").ok().json
    assert wanted
    monkeypatch.chdir(folder)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        read = connection.execute(f"FROM 'state/{uid}.parquet' ORDER BY ALL")
        names = [d[0] for d in read.description]
        resolved = [dict(zip(names, row, strict=True)) for row in read.fetchall()]
        answered = connection.execute(Path(f"queries/{uid}.duckdb.sql").read_text()).fetchall()
        keys = 'DISTINCT "' + '", "'.join(k["name"] for k in _named(folder)["states"][uid]["schema"]["keys"]) + '"'
        counts = f"SELECT count(*), count({keys}) FROM 'stored/{uid}/*.parquet'"
        [(rows, distinct)] = connection.execute(counts).fetchall()
    assert resolved == wanted
    assert sorted(map(repr, answered)) == sorted(repr(tuple(row.values())) for row in resolved)
    assert distinct == len(wanted)
    assert rows == distinct or uid == "tills", "one row per key, but of a process with maps, which has its entries too"


def test_what_going_on_needs_is_in_it_and_what_stays_behind_is_not(made: TransferPipeline, folder: Path) -> None:
    told, found = _named(folder), reads.get_checkpoint(made.tidemark.context, "market", 3)
    assert (told["pipeline"], told["checkpoint"], told["savepoint"]) == ("market", 3, "june")
    ends = {name: bounds["end"] for name, bounds in told["ranges"].items()}
    assert ends == {str(tp): end for tp, end in found.plan.ranges.ends.items()}
    assert told["logical_time_ms"] == found.plan.logical_time_ms
    assert told["watermark_ms"] == found.sealed.facts.watermark_ms
    clocks = to_json(found.sealed.facts.clocks)
    assert told["clocks"] == clocks and clocks["sales"]["watermark_ms"]
    lists = {x["name"]: x["elements"] for x in told["operator_states"]["tills"]["lists"]}
    assert lists == {x.name: list(x.elements) for x in found.operator_states["tills"].lists}
    assert all(state["schema"]["older"] == [] for state in told["states"].values())
    assert not {"sinks", "dead_letters"} & set(told)


def test_the_job_is_open_while_it_lasts_and_over_whatever_came_of_it(made: TransferPipeline, tmp_path: Path) -> None:
    jobs = made.tidemark.warehouse / "market" / "jobs"
    before = set(jobs.iterdir()) if jobs.exists() else set()
    made.tidemark("export", "market", "--checkpoint", "2", "--to", str(tmp_path / "x")).ok()
    opened, ended = sorted(set(jobs.iterdir()) - before, key=lambda p: len(p.name))
    record, end = (json.loads(p.read_text())["body"] for p in (opened, ended))
    assert (record["kind"], record["checkpoint"], end["job"], end["done"]) == ("export", 2, record["job"], True)


def test_what_fails_leaves_nothing(made: TransferPipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: ParquetFolder, path: str, text: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ParquetFolder, "text", full)
    made.tidemark("export", "market", "--to", str(tmp_path / "x")).failed(1, "No space left", "no part of the folder")
    assert list(tmp_path.iterdir()) == []
    ends = [json.loads(p.read_text())["body"] for p in (made.tidemark.warehouse / "market" / "jobs").glob("*.end.json")]
    assert [e["done"] for e in ends].count(False) == 1


def test_what_makes_no_sense_is_refused_before_anything_is_read(made: TransferPipeline, tmp_path: Path) -> None:
    jobs = len(list((made.tidemark.warehouse / "market" / "jobs").iterdir()))
    inside = made.tidemark.warehouse / "market" / "export"
    for to, words in {
        "gs://bucket/flights": ("neither a local folder nor a folder in S3",),
        str(tmp_path): ("exists", "left alone"),
        str(tmp_path / "no" / "x"): ("no folder for",),
        str(inside): ("is inside the warehouse",),
    }.items():
        made.tidemark("export", "market", "--to", to).failed(2, *words)
    to = str(tmp_path / "x")
    made.tidemark("export", "market", "--savepoint", "june", "--checkpoint", "3", "--to", to).failed(2)
    made.tidemark("export", "market", "--savepoint", "may", "--to", to).failed(3, "no savepoint 'may'")
    made.tidemark("export", "market", "--checkpoint", "9", "--to", to).failed(3, "chk-9")
    assert len(list((made.tidemark.warehouse / "market" / "jobs").iterdir())) == jobs
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_checkpoint_is_not_exported(made: TransferPipeline, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(made.tidemark.warehouse, tmp_path / "warehouse")
    copy = Command(tmp_path, "127.0.0.1:1", "sc://127.0.0.1:1")
    (first, *_) = (tmp_path / "warehouse" / "market" / "state" / "sold").glob("t1-1/runs/1.*/*.parquet")
    first.unlink()
    copy("export", "market", "--checkpoint", "1", "--to", str(tmp_path / "x")).failed(6, first.name, "breaks chk-1")
    assert not (tmp_path / "x").exists()


def test_stored_rows_are_cut_into_files_of_a_bounded_size(made: TransferPipeline, tmp_path: Path) -> None:
    found = reads.get_checkpoint(made.tidemark.context, "market")
    writer = FolderExport(
        warehouse=str(made.tidemark.warehouse), folder=ParquetFolder(tmp_path, rows_per_file=1), checkpoint=found
    )
    state = writer.state("sold", {})
    assert [f.rows for f in state.stored] == [state.rows] == [3], "a file ends with a row group"


@pytest.mark.parametrize("uid", UIDS)
def test_ranges_that_are_merged_one_after_the_other_make_the_same_files(
    made: TransferPipeline, tmp_path: Path, uid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = reads.get_checkpoint(made.tidemark.context, "market", 5)
    exported = {}
    for rows in (10**9, 3):
        monkeypatch.setattr(export_folder, "RANGE_ROWS", rows)
        folder = tmp_path / str(rows)
        folder.mkdir()
        export = FolderExport(warehouse=made.line.warehouse, folder=ParquetFolder(folder), checkpoint=found)
        state = export.state(uid, {})
        files = [file for file in (*state.stored, state.resolved) if file is not None]
        exported[rows] = [pq.read_table(folder / file.path, partitioning=None).to_pylist() for file in files]
    assert exported[3] == exported[10**9]
    keys = [k.name for k in found.plan.schemas[uid].keys]
    assert exported[3][-1] == sorted(exported[3][-1], key=lambda row: [row[name] for name in keys])
