"""Exports on a disk and in a bucket, held to one suite: what comes back, and what is refused."""

import hashlib
import io
import json
import random
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.copies.export_places import BucketPlace, ExportPlace, FolderPlace
from tests.copies.test_import import NOWHERE
from tests.copies.transfer_pipeline import DECLARATION, SEED, UIDS, TransferPipeline, transfer_pipeline
from tests.support.cli import Command
from tests.support.s3 import MOTO, SLOW_STORES
from tidemark.storage.parquet_folder import ParquetFolder


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> TransferPipeline:
    """A market with four checkpoints that nobody changes."""
    print(f"seed {SEED}; repeat with TIDEMARK_TEST_SEED={SEED}")
    return transfer_pipeline(tmp_path_factory.mktemp("made")).grown(4, compacted=2)


@pytest.fixture(params=["disk", *SLOW_STORES])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> ExportPlace:
    """Each kind of place, without an export."""
    if request.param == "disk":
        return FolderPlace(tmp_path / "export")
    return BucketPlace(request.getfixturevalue("bucket_on")(request.param)[0])


@pytest.fixture
def other(made: TransferPipeline, tmp_path: Path) -> TransferPipeline:
    """A pipeline of another name in another warehouse, without a checkpoint."""
    return made.beside(Command(tmp_path / "other", *NOWHERE), "bazaar")


def _export(made: TransferPipeline, place: ExportPlace, *more: str) -> None:
    made.tidemark("export", "market", "--to", place.at, *more, **place.variables).ok()


def _import(place: ExportPlace) -> tuple[str, ...]:
    return ("import", place.at, "--as", "bazaar")


def _scratch(*markets: TransferPipeline) -> list[Path]:
    return [p for m in markets for p in m.tidemark.warehouse.glob("*/scratch/*")]


def test_state_comes_back_key_by_key(made: TransferPipeline, other: TransferPipeline, place: ExportPlace) -> None:
    _export(made, place)
    told = other.tidemark(*_import(place), "--json", **place.variables).ok().json
    assert (told["from"], told["checkpoint"]) == ("market chk-4", None)
    assert other.tidemark.objects("bazaar") == {}, "a dry run"
    told = other.tidemark(*_import(place), "--execute", "--json", **place.variables).ok().json
    assert (told["timeline"], told["checkpoint"]) == ("t1", "chk-5")
    assert other.states() == made.states()
    for uid in UIDS:
        hashes = [m.tidemark("state", "hash", m.name, uid, "--json").ok().json["sha256"] for m in (made, other)]
        assert hashes[0] == hashes[1], uid
    other.tidemark("verify", "bazaar", "--content").ok()
    told = other.tidemark(*_import(place), "--execute", "--json", **place.variables).ok().json
    assert told["checkpoint"] == "chk-5", "a repetition finds its own work"
    assert _scratch(made, other) == []


def test_the_rows_are_those_of_the_state_to_a_reader_that_knows_parquet_only(
    made: TransferPipeline, place: ExportPlace
) -> None:
    _export(made, place, "--checkpoint", "3")
    files = place.files()
    told = json.loads(files["export.json"])["body"]
    for uid in UIDS:
        wanted = made.tidemark("state", "sql", "market", f"FROM {uid}_at(3) ORDER BY ALL", "--json").ok().json
        found = pq.read_table(io.BytesIO(files[told["states"][uid]["resolved"]["path"]])).to_pylist(
            maps_as_pydicts="strict"
        )
        assert sorted(map(_plain, found)) == sorted(map(_plain, wanted))
    named = [f for s in told["states"].values() for f in (*s["stored"], s["resolved"], *s["queries"].values())]
    assert {f["path"]: f["sha256"] for f in named} == {
        path: hashlib.sha256(raw).hexdigest() for path, raw in files.items() if path != "export.json"
    }
    assert all(len(files[f["path"]]) == f["bytes"] for f in named)


def _plain(row: dict[str, object]) -> str:
    return json.dumps(row, sort_keys=True, default=lambda x: x.isoformat())


def test_both_kinds_of_places_get_the_same_bytes(made: TransferPipeline, place: ExportPlace, tmp_path: Path) -> None:
    beside = FolderPlace(tmp_path / "beside")
    _export(made, place)
    _export(made, beside)
    contents = [sorted(raw for path, raw in p.files().items() if path != "export.json") for p in (place, beside)]
    assert contents[0] == contents[1]


def test_an_export_can_be_carried_from_one_kind_to_the_other(
    made: TransferPipeline, other: TransferPipeline, place: ExportPlace, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    elsewhere: ExportPlace = FolderPlace(tmp_path / "elsewhere")
    if isinstance(place, FolderPlace):
        elsewhere = BucketPlace(request.getfixturevalue("bucket_on")(MOTO)[0], "elsewhere")
    _export(made, place)
    for path, body in place.files().items():
        elsewhere.put(path, body)
    other.tidemark(*_import(elsewhere), "--execute", **elsewhere.variables).ok()
    assert other.states() == made.states()


def test_what_is_there_is_left_alone(made: TransferPipeline, place: ExportPlace) -> None:
    _export(made, place, "--checkpoint", "3")
    before, jobs = place.files(), _jobs(made)
    made.tidemark("export", "market", "--to", place.at, **place.variables).failed(2, "left alone", "another folder")
    assert place.files() == before
    assert _jobs(made) == jobs, "refused before any work"


def _jobs(made: TransferPipeline) -> set[Path]:
    return set((made.tidemark.warehouse / "market" / "jobs").iterdir())


def test_files_that_were_changed_removed_or_cut_are_refused_by_name(
    made: TransferPipeline, other: TransferPipeline, place: ExportPlace
) -> None:
    other.tidemark(*_import(place), **place.variables).failed(3, "no export in", "it has no export.json")
    _export(made, place)
    whole = place.files()
    data = sorted(path for path in whole if path != "export.json")
    for path in random.Random(SEED).sample(data, 2):
        raw = whole[path]
        flipped = raw[: len(raw) // 2] + bytes([raw[len(raw) // 2] ^ 1]) + raw[len(raw) // 2 + 1 :]
        for bad, words in (
            (flipped, f"{path}: its content differs from the export"),
            (raw[:-1], f"{path}: it has {len(raw) - 1} bytes, {len(raw)} were written"),
            (raw + b"\n", f"{path}: it has {len(raw) + 1} bytes, {len(raw)} were written"),
        ):
            place.put(path, bad)
            other.tidemark(*_import(place), **place.variables).failed(6, words)
        place.put(path, raw)
    for path in data:
        place.remove(path)
    all_of_them = [f"{path}: it is gone" for path in data]
    other.tidemark(*_import(place), "--execute", **place.variables).failed(6, *all_of_them)
    for path in data:
        place.put(path, whole[path])
    place.put("export.json", whole["export.json"].replace(b'"checkpoint":4', b'"checkpoint":3', 1))
    other.tidemark(*_import(place), "--execute", **place.variables).failed(1, "object damaged: export.json")
    place.remove("export.json")
    other.tidemark(*_import(place), "--execute", **place.variables).failed(3, "no export in")
    assert other.tidemark.objects("bazaar") == {}
    place.put("export.json", whole["export.json"])
    place.put("stored/sold/stray.parquet", b"nobody names it")
    other.tidemark(*_import(place), "--execute", **place.variables).ok()
    assert other.states() == made.states()
    assert _scratch(other) == []


def test_a_path_that_leads_out_of_the_export_is_not_followed(
    made: TransferPipeline, other: TransferPipeline, place: ExportPlace
) -> None:
    from tidemark.model.retention.export_manifest import Export

    _export(made, place)
    told = Export.decode(place.files()["export.json"])
    for outside in ("..", "stored/../../..", "/tmp", "a\0b"):
        place.put("export.json", told.below(outside).encode())
        other.tidemark(*_import(place), "--execute", **place.variables).failed(6, "not a file of an export")
    assert other.tidemark.objects("bazaar") == {}


def test_a_full_disk_leaves_nothing(
    made: TransferPipeline, other: TransferPipeline, place: ExportPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: ParquetFolder, path: str, text: str) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(ParquetFolder, "text", full)
        answer = made.tidemark("export", "market", "--to", place.at, **place.variables)
        answer.failed(1, "could not write", "No space left on device")
    assert place.files() == {}
    assert _scratch(made) == []
    _export(made, place)
    other.tidemark(*_import(place), "--execute", **place.variables).ok()


def test_nothing_is_fetched_for_a_pipeline_that_nobody_declares(place: ExportPlace, tmp_path: Path) -> None:
    tidemark = Command(tmp_path / "empty", *NOWHERE)
    tidemark.declare(DECLARATION, file="market.py", name="market")
    tidemark("import", place.at, "--as", "unknown", **place.variables).failed(3, "unknown")
    assert not tidemark.warehouse.exists()
