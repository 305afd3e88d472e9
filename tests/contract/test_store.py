"""The port `CheckpointStore`, held to one suite: memory and the local disk; and what only a disk can do."""

import errno
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from threading import Barrier
from uuid import uuid4

import pytest

from tests.support.bank import BankPipeline
from tests.support.s3 import MINIO, MOTO, SLOW_STORES
from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.recovery.savepoints import Savepoints
from tidemark.environment import SystemClock
from tidemark.errors import BusyError, ConflictError, NameRefusedError, NotFoundError, StoreError
from tidemark.model.retention.savepoint import SavepointChange, SavepointRequest
from tidemark.ports import CheckpointStore, PutOutcome
from tidemark.storage.local_store import FileTimelineLock, LocalStore
from tidemark.storage.s3_folder import S3Folder
from tidemark.storage.s3_store import S3Store
from tidemark.testing.twin.memory import MemoryStore

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def in_bucket(folder: S3Folder) -> S3Store:
    return S3Store(folder, "bank")


@pytest.fixture(params=["memory", "local", *SLOW_STORES])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> CheckpointStore:
    """Each implementation in turn."""
    if request.param in (MOTO, MINIO):
        return S3Store(request.getfixturevalue("bucket_on")(request.param)[1], "bank")
    return MemoryStore() if request.param == "memory" else LocalStore(tmp_path / "warehouse" / "bank")


@pytest.fixture
def local(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "bank")


def test_the_first_put_wins_and_the_second_changes_nothing(store: CheckpointStore) -> None:
    assert store.put_if_absent("ids/1.json", b"one") is PutOutcome.WON
    assert store.put_if_absent("ids/1.json", b"two") is PutOutcome.LOST
    assert store.put_if_absent("ids/1.json", b"one") is PutOutcome.LOST
    assert store.get("ids/1.json") == b"one"


def test_what_is_absent_is_none_and_lists_as_nothing(store: CheckpointStore) -> None:
    assert store.get("plans/t1/1.json") is None
    assert list(store.list("plans/")) == []
    store.put_if_absent("plans/t1/1.json", b"")
    assert store.get("plans/t1/1.json") == b""
    assert store.get("plans/t1/1.json/deeper") is None


def test_a_listing_is_in_order_of_names_at_any_depth_and_below_its_folder_only(store: CheckpointStore) -> None:
    for key in ("plans/t1/2.json", "plans/t1/1.json", "plans/t1/1/0.json", "plans/t10/1.json", "ids/1.json"):
        store.put_if_absent(key, b"x")
    assert list(store.list("plans/t1/")) == ["plans/t1/1.json", "plans/t1/1/0.json", "plans/t1/2.json"]
    assert list(store.list("plans/")) == sorted(store.list("plans/"))
    assert len(store.list("plans/")) == 4


def test_sixteen_threads_race_and_one_wins(store: CheckpointStore) -> None:
    writers, keys = 16, 40
    start = Barrier(writers)

    def race(me: int) -> list[int]:
        start.wait()
        return [k for k in range(keys) if store.put_if_absent(f"ids/{k}.json", b"%d" % me) is PutOutcome.WON]

    with ThreadPoolExecutor(writers) as pool:
        won = dict(enumerate(pool.map(race, range(writers))))
    assert sorted(k for found in won.values() for k in found) == list(range(keys))
    for me, found in won.items():
        assert all(store.get(f"ids/{k}.json") == b"%d" % me for k in found)


def test_of_sixteen_who_take_a_savepoints_name_at_once_one_wins(store: CheckpointStore) -> None:
    takers, names = 16, 8
    start = Barrier(takers)
    coordinator = _one_checkpoint(store)

    def take(me: int) -> list[str]:
        start.wait()
        taken = []
        for name in (f"sp{n}" for n in range(names)):
            with suppress(ConflictError):
                asked = SavepointRequest(name=name, owner=str(me), origin=str(me))
                taken.append(Savepoints(coordinator).create(asked).name)
        return taken

    with ThreadPoolExecutor(takers) as pool:
        won = dict(enumerate(pool.map(take, range(takers))))
    assert sorted(name for found in won.values() for name in found) == [f"sp{n}" for n in range(names)]
    for me, found in won.items():
        assert all(Savepoints(coordinator).get(name).owner == str(me) for name in found)


def test_of_sixteen_who_dispose_and_change_a_savepoint_none_undoes_a_disposal(store: CheckpointStore) -> None:
    start, coordinator = Barrier(16), _one_checkpoint(store)
    Savepoints(coordinator).create(SavepointRequest(name="sp", owner="ann", origin="x"))

    def act(me: int) -> None:
        start.wait()
        with suppress(ConflictError, NotFoundError):
            if me % 2:
                Savepoints(coordinator).change("sp", SavepointChange(note=str(me)))
            else:
                Savepoints(coordinator).dispose("sp")

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(act, range(16)))
    assert Savepoints(coordinator).dispose("sp").disposed
    ended = Savepoints(coordinator).find("sp")
    assert ended is not None
    assert store.list("savepoints/")[-1] == f"savepoints/sp/{ended.revision:06d}.json", "nothing came after it"


def _one_checkpoint(store: CheckpointStore) -> CheckpointCoordinator:
    bank = BankPipeline(store=store)  # type: ignore[arg-type]  # a bank over any store
    bank.send(1)
    bank.complete()
    return replace(bank.coordinator, write_ids=lambda: uuid4().hex)


RACER = """
import sys
from pathlib import Path
from tidemark.storage.local_store import LocalStore
store = LocalStore(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.read(1)
print(*(k for k in range(50) if store.put_if_absent(f"ids/{k}.json", sys.argv[2].encode()).value == "won"))
"""


def test_sixteen_processes_race_and_one_wins(local: LocalStore) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT / "include")}
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, str(local.root), str(n)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=env,
        )
        for n in range(16)
    ]
    for racer in racers:
        assert racer.stdout is not None and racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("g")
        racer.stdin.flush()
    won = [racer.communicate(timeout=60)[0].split() for racer in racers]
    assert sorted(int(k) for found in won for k in found) == list(range(50))
    for n, found in enumerate(won):
        assert all(local.get(f"ids/{k}.json") == str(n).encode() for k in found)


@pytest.mark.parametrize("key", ["../out.json", "a/../../out.json", "/etc/x", "a//b", "./a", "", "a/\0", ".."])
def test_keys_that_leave_the_root_are_refused(local: LocalStore, key: str) -> None:
    for call in (local.get, local.list, lambda k: local.put_if_absent(k, b"x")):
        with pytest.raises(NameRefusedError):
            call(key)
    assert not (local.root.parent / "out.json").exists()


def test_a_symbolic_link_does_not_lead_out(local: LocalStore, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    local.put_if_absent("ids/1.json", b"x")
    (local.root / "plans").symlink_to(outside)
    with pytest.raises(NameRefusedError, match="symbolic link"):
        local.put_if_absent("plans/1.json", b"x")
    assert list(outside.iterdir()) == []


def test_nothing_is_left_beside_the_objects(local: LocalStore) -> None:
    local.put_if_absent("ids/1.json", b"one")
    local.put_if_absent("ids/1.json", b"two")
    assert [p.name for p in (local.root / "ids").iterdir()] == ["1.json"]


def test_a_file_that_a_crash_left_aside_is_no_object(local: LocalStore) -> None:
    local.put_if_absent("ids/1.json", b"one")
    (local.root / "ids" / ".tmp-dead").write_bytes(b"half")
    assert local.list("ids/") == ["ids/1.json"]


def test_the_bytes_are_durable_before_the_name_and_the_name_before_the_answer(
    local: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    fsync, link = os.fsync, os.link

    def seen_fsync(handle: int) -> None:
        calls.append("fsync folder" if os.path.isdir(f"/proc/self/fd/{handle}") else "fsync file")
        fsync(handle)

    def seen_link(source: str, target: Path) -> None:
        calls.append("link")
        link(source, target)

    local.put_if_absent("ids/1.json", b"x")
    monkeypatch.setattr(os, "fsync", seen_fsync)
    monkeypatch.setattr(os, "link", seen_link)
    local.put_if_absent("ids/2.json", b"x")
    assert calls == ["fsync file", "link", "fsync folder"]
    calls.clear()
    local.put_if_absent("plans/t1/1.json", b"x")
    assert calls == ["fsync folder", "fsync folder", "fsync file", "link", "fsync folder"]
    calls.clear()
    local.put_if_absent("plans/t1/1.json", b"y")
    assert calls == ["fsync file", "link", "fsync folder"], (
        "what is there may not be durable yet, and now it is relied on"
    )


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EIO])
def test_a_disk_that_refuses_is_an_error_that_says_what_is_safe(
    local: LocalStore, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    local.put_if_absent("ids/1.json", b"x")

    def refuse(handle: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(StoreError, match=f"could not write ids/2.json: {os.strerror(code)}") as caught:
        local.put_if_absent("ids/2.json", b"x")
    assert "every earlier object is intact" in str(caught.value)
    assert "free space" in str(caught.value)
    monkeypatch.undo()
    assert local.list("ids/") == ["ids/1.json"]
    assert [p.name for p in (local.root / "ids").iterdir()] == ["1.json"]


def test_an_unwritable_root_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "bank").write_text("a file, not a folder")
    store = LocalStore(tmp_path / "bank")
    with pytest.raises(StoreError, match="could not write ids/1.json"):
        store.put_if_absent("ids/1.json", b"x")


def test_an_unreadable_object_is_a_store_error(local: LocalStore) -> None:
    (local.root / "ids" / "1.json").mkdir(parents=True)
    with pytest.raises(StoreError, match="could not read ids/1.json"):
        local.get("ids/1.json")


HOUR = timedelta(hours=1)
HOLDER = """
import sys
from pathlib import Path
from datetime import timedelta
from tidemark.storage.local_store import FileTimelineLock
from tidemark.environment import SystemClock
HOUR = timedelta(hours=1)
with FileTimelineLock(Path(sys.argv[1]), SystemClock().now_ms).hold("t1", HOUR):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_timeline_is_held_by_one_process_and_freed_by_its_death(tmp_path: Path) -> None:
    lock = FileTimelineLock(tmp_path / "locks", SystemClock().now_ms)
    env = {**os.environ, "PYTHONPATH": str(ROOT / "include")}
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(lock.folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=env,
    )
    try:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        with pytest.raises(BusyError, match=f"process {holder.pid} holds it") as caught, lock.hold("t1", HOUR):
            pytest.fail("held twice")
        assert caught.value.code == 4
        with lock.hold("t2", HOUR):
            pass
    finally:
        holder.kill()
        holder.communicate()
    with lock.hold("t1", HOUR):
        pass


def test_a_lock_that_cannot_be_opened_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "locks").write_text("a file")
    with (
        pytest.raises(StoreError, match="could not open the lock of timeline t1"),
        FileTimelineLock(tmp_path / "locks", SystemClock().now_ms).hold("t1", HOUR),
    ):
        pytest.fail("opened")


@pytest.mark.parametrize("kind", ["memory", "local"])
def test_stamps_list_the_same_keys_and_tell_one_object_from_another(kind: str, tmp_path: Path) -> None:
    made = MemoryStore() if kind == "memory" else LocalStore(tmp_path / "bank")
    for key in ("timelines/t1/1.json", "timelines/t1/2.json", "timelines/t10/1.json", "ids/1.json"):
        made.put_if_absent(key, b"one")
    before = made.stamps("timelines/")
    assert list(before) == list(made.list("timelines/"))
    assert all(before.values())
    assert made.stamps("timelines/") == before, "nothing was changed"
    made.put_if_absent("timelines/t1/1.json", b"two")
    assert made.stamps("timelines/") == before, "a put that was lost changes nothing"
    if isinstance(made, MemoryStore):
        made.objects["timelines/t1/1.json"] = b"two"
    else:  # as a backup is put back, with the time that the file had
        path = made.root / "timelines/t1/1.json"
        at = path.stat()
        path.unlink()
        path.write_bytes(b"two")
        os.utime(path, ns=(at.st_atime_ns, at.st_mtime_ns))
    after = made.stamps("timelines/")
    assert {key for key in after if after[key] != before[key]} == {"timelines/t1/1.json"}
    assert dict(made.stamps("nowhere/")) == {}


@pytest.mark.slow
def test_stamps_of_a_bucket_are_what_it_says_of_its_objects(in_bucket: S3Store) -> None:
    for key in ("timelines/t1/1.json", "timelines/t1/2.json", "timelines/t10/1.json", "ids/1.json"):
        in_bucket.put_if_absent(key, b"one")
    before = in_bucket.stamps("timelines/")
    assert list(before) == list(in_bucket.list("timelines/"))
    assert all(before.values())
    in_bucket.put_if_absent("timelines/t1/1.json", b"two")
    assert in_bucket.stamps("timelines/") == before
    in_bucket.warehouse.remove_all([f"{in_bucket.pipeline}/timelines/t1/1.json"])
    in_bucket.put_if_absent("timelines/t1/1.json", b"two")
    after = in_bucket.stamps("timelines/")
    assert {key for key in after if after[key] != before[key]} == {"timelines/t1/1.json"}
