"""`tidemark verify`: every damage of a warehouse is found, told by file, and by each restore point that it breaks."""

import json
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.copies.transfer_pipeline import SEED, TransferPipeline, transfer_pipeline
from tests.support.cli import Command
from tidemark.coordinator.recovery.savepoints import Savepoints
from tidemark.errors import DamagedError
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.retention.savepoint import SavepointRequest
from tidemark.operations import reads, verification
from tidemark.readers.state_reader import files_of
from tidemark.tables import integrity_check as verifying

CHANCE = random.Random(SEED)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> TransferPipeline:
    """Five checkpoints, a compaction behind the second, a savepoint of the first and of the third."""
    print(f"seed {SEED}; repeat with TIDEMARK_TEST_SEED={SEED}")
    made = transfer_pipeline(tmp_path_factory.mktemp("whole")).grown(5, compacted=2)
    savepoints = Savepoints(made.line.coordinator)
    for name, pinned in (("early", 1), ("june", 3)):
        savepoints.create(SavepointRequest(name=name, owner="ann", origin="test", checkpoint=pinned))
    return made


@pytest.fixture
def copy(whole: TransferPipeline, tmp_path: Path) -> Command:
    """A copy of it, to be damaged."""
    shutil.copytree(whole.tidemark.warehouse, tmp_path / "warehouse")
    return Command(tmp_path, "127.0.0.1:1", "sc://127.0.0.1:1")


def _files(tidemark: Command, checkpoint: Checkpoint) -> Iterator[Path]:
    """Every data file that a checkpoint names."""
    for ack in checkpoint.sealed.acks:
        for handle in (ack.handle, ack.dead_letters, ack.sink):
            yield from (tidemark.warehouse / s.path / f.path for s, f in files_of(str(tidemark.warehouse), handle))


def _flip(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[CHANCE.randrange(len(raw))] ^= 0x10
    path.write_bytes(raw)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def test_a_whole_warehouse_is_whole_to_the_last_byte(whole: TransferPipeline) -> None:
    told = whole.tidemark("verify", "market", "--content", "--json").ok().json
    named = {
        path for c in reads.list_checkpoints(whole.tidemark.context, "market") for path in _files(whole.tidemark, c)
    }
    assert told["restore_points"] == [
        *(f"chk-{n}" for n in range(1, 6)), "savepoint early", "savepoint june", "timeline t1"
    ]  # fmt: skip
    assert (told["damaged"], told["broken"]) == ([], [])
    assert (told["files"], told["bytes"]) == (len(named), sum(p.stat().st_size for p in named))
    assert whole.tidemark("verify", "market").ok().err.startswith("undamaged: 8 restore points")


def test_what_restore_points_share_is_read_once(whole: TransferPipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: Counter[tuple[object, ...]] = Counter()

    def counted(name: str) -> None:
        real = getattr(verifying, name)

        def call(*given: object) -> object:
            seen[(name, *given)] += 1
            return real(*given)

        monkeypatch.setattr(verifying, name, call)

    for name in ("commit_at", "open_table", "hash_of", "from_commit"):
        counted(name)
    assert not verification.verify(whole.tidemark.context, "market", content=True).damages
    assert set(Counter(str(key[0]) for key in seen)) == {"commit_at", "open_table", "hash_of", "from_commit"}
    assert [key for key, times in seen.items() if times > 1 and key[0] != "open_table"] == []


@pytest.mark.parametrize("damage", [_cut, Path.unlink, _flip], ids=["cut", "gone", "flipped"])
def test_a_bad_data_file_is_told_with_exactly_the_restore_points_that_name_it(
    copy: Command, damage: Callable[[Path], None]
) -> None:
    checkpoints = reads.list_checkpoints(copy.context, "market")
    named = {c.plan.name: {str(p.relative_to(copy.warehouse)) for p in _files(copy, c)} for c in checkpoints}
    named |= {"savepoint early": named["chk-1"], "savepoint june": named["chk-3"], "timeline t1": named["chk-5"]}
    bad = CHANCE.choice(sorted(set.union(*named.values())))
    damage(copy.warehouse / bad)
    answer = copy("verify", "market", "--content", "--json")
    assert answer.code == 6, answer.err
    assert [d["file"] for d in answer.json["damaged"]] == [bad]
    breaks = {name for name, files in named.items() if bad in files}
    assert set(answer.json["damaged"][0]["breaks"]) == set(answer.json["broken"]) == breaks
    assert f"damaged: {bad}: it" in answer.err
    without = copy("verify", "market", "--json").json["broken"]
    assert set(without) == (set() if damage is _flip else breaks), "sizes tell all but a flipped byte"
    assert "Safe: nothing was started or changed" in answer.err


def test_a_flipped_byte_shows_in_the_content_and_not_in_the_size(copy: Command) -> None:
    newest = reads.get_checkpoint(copy.context, "market")
    for path in CHANCE.sample(sorted(_files(copy, newest)), 4):
        before = path.read_bytes()
        _flip(path)
        with_content = copy("verify", "market", "--checkpoint", newest.plan.name, "--content", "--json")
        assert [d["file"] for d in with_content.json["damaged"]] == [str(path.relative_to(copy.warehouse))]
        assert copy("verify", "market", "--checkpoint", newest.plan.name).ok(), "sizes do not show it"
        path.write_bytes(before)


def test_without_recorded_hashes_pages_and_footers_are_read(copy: Command) -> None:
    """As files are that an earlier release committed: the commits say nothing of their content."""
    [table] = {
        copy.warehouse / s.path
        for s in reads.get_checkpoint(copy.context, "market").handles["rates"]
        if "runs" in s.path
    }
    for log in (table / "_delta_log").glob("*.json"):
        log.write_text(log.read_text().replace("tidemark_sha256", "nothing"))
    told = copy("verify", "market", "--content", "--json").json["damaged"]
    assert {Path(d["file"]).parent.name for d in told} == {"_delta_log"}, "they are not the commits that were made"
    (file, *_) = sorted(table.glob("*/*.parquet"))
    from tidemark.tables.integrity_check import _unreadable

    rows = 1
    assert _unreadable(file, rows) is None
    assert _unreadable(file, rows + 1) == "it has 1 rows, 2 were committed"
    raw = file.read_bytes()
    file.write_bytes(raw[:8] + bytes(40) + raw[48:])
    assert "not a complete Parquet file" in str(_unreadable(file, rows))


@pytest.mark.parametrize("how", ["altered", "gone"])
def test_a_bad_log_breaks_the_checkpoints_whose_version_needs_it(copy: Command, how: str) -> None:
    runs = {c.plan.name: c.handles["tills"].segments[-1] for c in reads.list_checkpoints(copy.context, "market")}
    third = runs["chk-3"]
    log = copy.warehouse / third.path / "_delta_log" / f"{third.version:020d}.json"
    if how == "altered":
        log.write_text(log.read_text().replace('"tidemark_uid":"tills"', '"tidemark_uid":"t1lls"'))
    else:
        log.unlink()
    answer = copy("verify", "market", "--json")
    [damage] = answer.json["damaged"]
    assert damage["file"] == str(log.relative_to(copy.warehouse))
    assert set(damage["breaks"]) == {"chk-3", "chk-4", "chk-5", "savepoint june", "timeline t1"}
    assert copy("verify", "market", "early").ok()
    assert copy("verify", "market", "june", "--json").json["broken"] == answer.json["broken"]


def test_a_bad_manifest_hides_no_other_restore_point(copy: Command) -> None:
    manifest = copy.warehouse / "market" / "timelines" / "t1" / f"{3:012d}.json"
    manifest.write_text(manifest.read_text().replace('"k":1', '"k":2', 1))
    answer = copy("verify", "market", "--json")
    assert answer.code == 6
    assert [(d["file"], d["breaks"]) for d in answer.json["damaged"]] == [
        (f"market/timelines/t1/{3:012d}.json", ["chk-3", "savepoint june"])
    ]
    assert "checksum" in answer.json["damaged"][0]["why"]
    assert copy("verify", "market", "--checkpoint", "3").code == 6
    for n in (1, 2, 4, 5):
        copy("verify", "market", "--checkpoint", str(n)).ok()


def test_a_stored_query_an_id_and_a_savepoint_that_are_bad_are_told(copy: Command) -> None:
    root = copy.warehouse / "market"
    (query, *_) = sorted((root / "queries").iterdir())
    query.write_text("SELECT 1")
    (root / "ids" / f"{2:012d}.json").unlink()
    savepoint = root / "savepoints" / "early" / f"{1:06d}.json"
    savepoint.write_text(savepoint.read_text().replace("ann", "bob"))
    (plan,) = (root / "plans" / "t1").glob(f"{4:012d}.0001.json")
    plan.write_text("{")
    told = {d["file"]: d["breaks"] for d in copy("verify", "market", "--json").json["damaged"]}
    every = [*(f"chk-{n}" for n in range(1, 6)), "savepoint june", "timeline t1"]
    assert told == {
        f"market/queries/{query.name}": every,
        f"market/ids/{2:012d}.json": ["chk-2"],
        f"market/savepoints/early/{1:06d}.json": ["savepoint early"],
        f"market/plans/t1/{4:012d}.0001.json": [],
    }


def test_whoever_starts_from_a_damaged_checkpoint_is_stopped_before(copy: Command) -> None:
    found = reads.get_checkpoint(copy.context, "market", 3)
    verification.verify_checkpoint(copy.context, found)
    (bad, *_) = _files(copy, found)
    bad.unlink()
    with pytest.raises(DamagedError, match=r"chk-3.*savepoint june") as raised:
        verification.verify_checkpoint(copy.context, found)
    assert raised.value.code == 6
    assert str(bad.relative_to(copy.warehouse)) in raised.value.what


def test_what_is_not_there_is_not_found(copy: Command) -> None:
    copy("verify", "market", "--checkpoint", "9").failed(3, "no completed checkpoint chk-9")
    copy("verify", "market", "late").failed(3, "no savepoint 'late'")
    copy("verify", "market", "june", "--checkpoint", "3").failed(2, "give one of them")
    copy("verify", "nothing").failed(3)


def test_json_and_people_are_told_the_same(copy: Command) -> None:
    (bad, *_) = _files(copy, reads.get_checkpoint(copy.context, "market", 1))
    bad.unlink()
    [told] = json.loads(copy("verify", "market", "--json").out)["damaged"]
    shown = copy("verify", "market").out
    for word in (told["file"], "it is gone", "chk-1", "savepoint early"):
        assert word in shown
