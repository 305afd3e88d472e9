"""`tidemark import`: state after it is state before it, key by key, and goes on to equal results."""

import json
import shutil
from pathlib import Path

import pytest

from tests.copies.transfer_pipeline import DECLARATION, SEED, UIDS, TransferPipeline, transfer_pipeline
from tests.support.cli import Command
from tidemark.coordinator.plans.restore_point import RestorePoint
from tidemark.coordinator.recovery.import_state import Importer
from tidemark.coordinator.recovery.restore import Recovery

NOWHERE = ("127.0.0.1:1", "sc://127.0.0.1:1")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[TransferPipeline, Path]:
    """A market with four checkpoints that nobody changes, and an export of it."""
    print(f"seed {SEED}; repeat with TIDEMARK_TEST_SEED={SEED}")
    home = tmp_path_factory.mktemp("exported")
    made = transfer_pipeline(home).grown(4, compacted=2)
    made.tidemark("export", "market", "--to", str(home / "export")).ok()
    return made, home / "export"


@pytest.fixture
def first(tmp_path: Path) -> TransferPipeline:
    """A market of four checkpoints, exported to `export` beside it."""
    made = transfer_pipeline(tmp_path / "first").grown(4, compacted=2)
    made.tidemark("export", "market", "--to", str(tmp_path / "export")).ok()
    return made


def _other(
    first: TransferPipeline, tmp_path: Path, name: str = "bazaar", declared: str | None = None
) -> TransferPipeline:
    """A pipeline of another name in another warehouse, over the same log."""
    return first.beside(Command(tmp_path / "other", *NOWHERE), name, declared)


def test_state_comes_over_key_by_key_and_goes_on_to_equal_results(first: TransferPipeline, tmp_path: Path) -> None:
    other = _other(first, tmp_path)
    told = other.tidemark("import", str(tmp_path / "export"), "--as", "bazaar", "--execute", "--json").ok().json
    assert (told["from"], told["timeline"], told["checkpoint"]) == ("market chk-4", "t1", "chk-5")
    assert (told["starts_empty"], told["left_behind"]) == ([], [])
    assert other.states() == first.states()
    for uid in UIDS:
        hashes = [m.tidemark("state", "hash", m.name, uid, "--json").ok().json["sha256"] for m in (first, other)]
        assert hashes[0] == hashes[1], uid
    other.tidemark("verify", "bazaar", "--content").ok()
    other.tidemark("verify", "bazaar", "--checkpoint", "5").ok()
    for n in range(3):
        first.send()
        done = [m.line.checkpoint() for m in (first, other)]
        assert [c.id for c in done] == [5 + n, 6 + n]
        assert other.states(changed=False) == first.states(changed=False)
        if n == 1:
            assert all(other.line.compact(uid, full=True) for uid in UIDS)
    assert [m.line.coordinator.head().entry.plan.adopted.keys() for m in (other,)] == [set(UIDS)]  # type: ignore[union-attr]
    receipts = other.tidemark("sink", "show", "bazaar", "receipts", "--limit", "1000", "--json").ok().json
    before = first.tidemark("sink", "show", "market", "receipts", "--limit", "1000", "--json").ok().json
    strip = [{k: v for k, v in r.items() if k != "_checkpoint"} for r in before if r["_checkpoint"] > 4]
    assert [{k: v for k, v in r.items() if k != "_checkpoint"} for r in receipts] == strip, "a sink starts empty"
    other.tidemark("verify", "bazaar", "--content").ok()


def test_without_execute_nothing_is_written(exported: tuple[TransferPipeline, Path], tmp_path: Path) -> None:
    tidemark = Command(tmp_path, *NOWHERE)
    tidemark.declare(DECLARATION, file="bazaar.py", name="bazaar")
    answer = tidemark("import", str(exported[1]), "--as", "bazaar", "--json").ok()
    assert answer.json["checkpoint"] is None
    assert set(answer.json["rows"]) == set(UIDS)
    assert answer.json["offsets"]["sales-0"] > 0
    assert answer.err.endswith(f"Next: tidemark import {exported[1]} --as bazaar --execute\n")
    assert not tidemark.warehouse.exists()


def test_a_checkpoint_that_was_imported_is_one_like_any_other(first: TransferPipeline, tmp_path: Path) -> None:
    """In the warehouse that it came from, under another name; and as a timeline beside a live one."""
    other = first.beside(first.tidemark, "bazaar")
    first.tidemark("import", str(tmp_path / "export"), "--as", "bazaar", "--execute").ok()
    first.tidemark("import", str(tmp_path / "export"), "--as", "bazaar", "--execute").ok(), "it finds its own work"
    (only,) = first.tidemark("checkpoint", "list", "bazaar", "--json").ok().json
    assert (only["id"], only["parent"], only["records"]) == ("chk-5", None, 0)
    assert other.states() == first.states()
    first.tidemark("import", str(tmp_path / "export"), "--as", "market", "--execute").failed(4, "t1 has begun")
    done = first.tidemark(
        "import", str(tmp_path / "export"), "--as", "market", "--timeline", "again", "--execute", "--json"
    ).ok().json  # fmt: skip
    assert done["timeline"] == "again"
    number = int(done["checkpoint"].removeprefix("chk-"))
    assert number > 4
    assert [first.rows(uid, number) for uid in UIDS] == [first.rows(uid, 4) for uid in UIDS]
    assert first.line.coordinator.timelines.live() == "t1"
    first.send()
    first.line.checkpoint()
    beside = first.line.checkpoint(timeline="again")
    assert [_bare(first.rows(uid, beside.id)) for uid in UIDS] == [_bare(first.rows(uid)) for uid in UIDS]
    first.tidemark("verify", "market", "--content").ok()
    listed = first.tidemark("timeline", "list", "market", "--json").ok().json
    assert {b["timeline"]: b["is_live"] for b in listed} == {"t1": True, "again": False}
    coordinator = first.line.coordinator
    recovery = Recovery(coordinator=coordinator, pipeline=first.line.pipeline)
    recovery.restore(RestorePoint(checkpoint=coordinator.checkpoint(number)))
    assert coordinator.timelines.live() == "t2"
    first.line.checkpoint()
    assert [_bare(first.rows(uid)) for uid in UIDS] == [_bare(first.rows(uid, beside.id)) for uid in UIDS]
    first.tidemark("import", str(tmp_path / "export"), "--as", "market", "--timeline", "t9").failed(2, "t9")


def _bare(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    return [{k: v for k, v in r.items() if k != "_changed"} for r in rows]


def test_a_declaration_that_has_changed_is_compared_before_anything_is_written(
    first: TransferPipeline, tmp_path: Path
) -> None:
    renamed = DECLARATION.replace("least: int | None = state.min", "lowest: int | None = state.min").replace(
        'state.min("cents")', 'state.min("cents", was="least")'
    )
    fewer = renamed.replace('    broadcast=[Broadcast("rates", KafkaSource("rates", Rate), key_by="item")],\n', "")
    fewer = fewer.replace("    broadcast: Mapping[str, Mapping[str, Rate]],\n", "").replace(
        'broadcast["rates"].get(sale.item)', "None"
    )
    other = _other(first, tmp_path, declared=DECLARATION.replace('state.max("cents")', 'state.sum("cents")'))
    line = ("import", str(tmp_path / "export"), "--as", "bazaar", "--execute")
    other.tidemark(*line).failed(2, "sold.most: max('cents') became sum('cents')")
    other.tidemark.declare(fewer, file="bazaar.py", name="bazaar")
    other.tidemark(*line).failed(2, "rates", "--allow-non-restored-state")
    assert not other.tidemark.warehouse.joinpath("bazaar", "ids").exists()
    told = other.tidemark(*line, "--allow-non-restored-state", "--json").ok().json
    assert told["left_behind"] == ["rates"]
    sold = {r["item"]: r["lowest"] for r in other.rows("sold")}
    assert sold == {r["item"]: r["least"] for r in first.rows("sold")}
    other = _other(first, tmp_path, declared=fewer)
    first.send()
    first.line.checkpoint()
    other.line.checkpoint()
    wanted = [{"lowest" if k == "least" else k: v for k, v in r.items()} for r in _bare(first.rows("sold"))]
    assert _bare(other.rows("sold")) == wanted


def test_a_folder_that_is_not_whole_is_refused_file_by_file(
    exported: tuple[TransferPipeline, Path], tmp_path: Path
) -> None:
    tidemark = Command(tmp_path, *NOWHERE)
    tidemark.declare(DECLARATION, file="bazaar.py", name="bazaar")
    folder = tmp_path / "copy"
    line = ("import", str(folder), "--as", "bazaar", "--execute")
    tidemark(*line).failed(3, "no export in")
    shutil.copytree(exported[1], folder)
    gone, bad = folder / "stored/sold/part-00000.parquet", folder / "stored/tills/part-00000.parquet"
    raw = bytearray(bad.read_bytes())
    raw[len(raw) // 2] ^= 1
    bad.write_bytes(raw)
    gone.unlink()
    tidemark(*line).failed(
        6, "stored/sold/part-00000.parquet: it is gone", "stored/tills/part-00000.parquet: its content"
    )
    manifest = folder / "export.json"
    told = json.loads(manifest.read_text())
    told["body"]["checkpoint"] = 1
    manifest.write_text(json.dumps(told))
    tidemark(*line).failed(1, "object damaged: export.json")
    assert not tidemark.warehouse.joinpath("bazaar", "state").exists()
    tidemark("import", "gs://bucket/x", "--as", "bazaar").failed(2, "neither a local folder nor a folder in S3")
    tidemark("import", str(exported[1]), "--as", "unknown").failed(3)


@pytest.mark.parametrize("dies", ["plan", "seal", "complete"])
def test_an_import_that_was_killed_is_finished_by_the_next_one_or_by_a_run(
    exported: tuple[TransferPipeline, Path], tmp_path: Path, dies: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, folder = exported
    other = _other(first, tmp_path)
    line = ("import", str(folder), "--as", "bazaar", "--execute")
    with monkeypatch.context() as patch:
        if dies == "plan":
            patch.setattr(Importer, "plan", _killed)
        elif dies == "seal":
            patch.setattr(Importer, "complete", _killed)
        else:
            patch.setattr("tidemark.coordinator.checkpoints.coordinator.CheckpointCoordinator.complete", _killed)
        with pytest.raises(RuntimeError, match="killed"):
            other.tidemark(*line)
    if dies == "seal":
        # An ordinary run finds the open plan, and comes to the same checkpoint: it reads nothing.
        assert other.line.checkpoint().id == 5
    else:
        told = other.tidemark(*line, "--json").ok().json
        assert told["checkpoint"] == ("chk-6" if dies == "plan" else "chk-5")
    assert other.states() == first.states()
    other.tidemark("verify", "bazaar", "--content").ok()


def _killed(*args: object, **kwargs: object) -> None:
    raise RuntimeError("killed")


def test_an_operator_that_was_renamed_goes_on_with_its_rows(
    exported: tuple[TransferPipeline, Path], tmp_path: Path
) -> None:
    renamed = DECLARATION.replace('Fold("sold", key_by="item",', 'Fold("items", was="sold", key_by="item",')
    tidemark = Command(tmp_path, *NOWHERE)
    tidemark.declare(renamed, file="bazaar.py", name="bazaar")
    tidemark("import", str(exported[1]), "--as", "bazaar", "--execute").ok()
    found = tidemark("state", "sql", "bazaar", "FROM items ORDER BY ALL", "--json").ok().json
    assert found == exported[0].rows("sold")
