"""The port `TableFiles`, held to one suite: dicts and the local disk; and what only a real log can do (fault 39)."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.support.s3 import MINIO, MOTO, SLOW_STORES, Bucket
from tests.support.s3_proxy import Fault, Times
from tests.support.tables_drivers import TABLE, DeltaTablesDriver, Fence, MemoryTablesDriver, TablesDriver, request
from tidemark.errors import NameRefusedError, StoreError
from tidemark.model.checkpoint.segments import LOG, Segment
from tidemark.model.retention.deletion import log_prefix
from tidemark.model.retention.shared_state import StoredFile
from tidemark.ports import TableFiles
from tidemark.storage.s3_folder import S3Folder
from tidemark.tables.local_table_files import LocalTableFiles
from tidemark.tables.s3_table_files import S3TableFiles
from tidemark.testing.twin.table_files import MemoryTableFiles

RUNS = 45


@dataclass
class TableWithFiles:
    """A table with a driver that commits, and the port."""

    driver: TablesDriver
    files: TableFiles
    fresh: Callable[[], TableFiles]
    sent: Callable[[], None] = lambda: None
    tells_what_was_there: bool = True

    def commit(self, number: int, parent: Segment | None, **options: object) -> Segment:
        made = self.driver.tables.commit(
            request(self.driver.write(number, 1), number, parent, **options), Fence()
        ).segment
        self.sent()
        return made

    def line(self, count: int) -> list[Segment]:
        """So many runs, each on top of the one before."""
        made: list[Segment] = []
        for number in range(1, count + 1):
            made.append(self.commit(number, made[-1] if made else None))
        return made

    def long_line(self, runs: "Runs") -> list[Segment]:
        """As `line(RUNS)`; on a disk a copy of it, because only what comes then is tried."""
        if not isinstance(self.driver, DeltaTablesDriver):
            return self.line(RUNS)
        shutil.copytree(runs.root, self.driver.root, dirs_exist_ok=True)
        self.sent()
        return list(runs.made)

    def log(self) -> list[StoredFile]:
        return [f for f in self.files.files(TABLE) if f"/{LOG}/" in f.path]

    def trim(self, oldest: int) -> int:
        """What a sweep does to a log; the number of files that went."""
        prefix = log_prefix(TABLE, self.log(), oldest)
        if prefix is None:
            return 0
        self.files.ensure_log_checkpoint(TABLE, prefix.until)
        return self.files.delete(f.path for f in prefix.files)

    def live(self, *versions: int) -> dict[int, set[str]]:
        """Per version what somebody finds who has read nothing before."""
        return {v: {f.path for f in found} for v, found in self.fresh().history(TABLE).live(versions)}


class Mirror:
    """What a driver writes to a disk, object by object in a bucket: each once, so that what was deleted stays so."""

    def __init__(self, root: Path, bucket: Bucket) -> None:
        self.root, self.bucket, self.sent = root, bucket, set[str]()

    def send(self) -> None:
        for path in sorted(p.relative_to(self.root).as_posix() for p in self.root.rglob("*") if p.is_file()):
            if path not in self.sent:
                self.sent.add(path)
                self.bucket.put(f"house/{path}", (self.root / path).read_bytes())


@dataclass(frozen=True)
class Runs:
    """A long line of runs on a disk; nobody changes it."""

    root: Path
    made: tuple[Segment, ...]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    root = tmp_path_factory.mktemp("runs")
    world = TableWithFiles(DeltaTablesDriver(root), LocalTableFiles(str(root)), lambda: LocalTableFiles(str(root)))
    return Runs(root, tuple(world.line(RUNS)))


@pytest.fixture
def in_bucket(bucket: Bucket, folder: S3Folder, tmp_path: Path) -> TableWithFiles:
    return _in_bucket(bucket, folder, tmp_path)


def _in_bucket(bucket: Bucket, folder: S3Folder, tmp_path: Path) -> TableWithFiles:
    """Through the proxy, so that faults can be set."""
    files, mirror = S3TableFiles(folder), Mirror(tmp_path, bucket)
    return TableWithFiles(
        DeltaTablesDriver(tmp_path), files, lambda: S3TableFiles(folder), mirror.send, tells_what_was_there=False
    )


@pytest.fixture(params=["memory", "local", *SLOW_STORES])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> TableWithFiles:
    if request.param == "memory":
        memory = MemoryTablesDriver()
        return TableWithFiles(memory, MemoryTableFiles(memory.tables), lambda: MemoryTableFiles(memory.tables))
    if request.param in (MOTO, MINIO):
        bucket, folder = request.getfixturevalue("bucket_on")(request.param)
        return _in_bucket(bucket, folder, tmp_path)
    return TableWithFiles(
        DeltaTablesDriver(tmp_path), LocalTableFiles(str(tmp_path)), lambda: LocalTableFiles(str(tmp_path))
    )


@pytest.fixture
def disk(tmp_path: Path) -> TableWithFiles:
    return TableWithFiles(
        DeltaTablesDriver(tmp_path), LocalTableFiles(str(tmp_path)), lambda: LocalTableFiles(str(tmp_path))
    )


def test_a_history_is_what_every_version_names(world: TableWithFiles) -> None:
    one, two, _ = world.line(3)
    foreign = next(iter(world.driver.live()))
    world.driver.foreign_removal(foreign)
    world.sent()
    world.commit(4, two)
    history = world.files.history(TABLE)
    assert (history.oldest, history.newest) == (0, 4)
    versions = dict(history.live(range(5)))
    for version, found in versions.items():
        assert {f.path for f in found} == {f"{TABLE}/{path}" for path in world.driver.live(version)}, version
    assert {f.path for f in versions[one.version]} == {f"{TABLE}/1.1/part-0.parquet"} or len(versions[0]) == 1
    assert any(f.removed is not None and f.path.endswith(foreign) for f in history.files), "removed, and added again"


def test_a_history_goes_on_where_it_ended(world: TableWithFiles) -> None:
    made = world.line(2)
    assert world.files.history(TABLE).newest == 1
    world.commit(3, made[-1])
    assert world.files.history(TABLE) == world.fresh().history(TABLE)


def test_a_table_that_nobody_committed_to_has_no_versions(world: TableWithFiles) -> None:
    assert world.files.history("p/state/u/t1-9/runs").newest == -1
    assert list(world.files.files("p/state/u/t1-9")) == []
    with pytest.raises(StoreError, match="files in use are unknown"):
        list(world.files.history("p/state/u/t1-9/runs").live([0]))


def test_deleting_what_is_gone_is_no_error(world: TableWithFiles) -> None:
    world.line(2)
    paths = [f.path for f in world.files.files(TABLE) if f.path.endswith(".parquet") and LOG not in f.path]
    assert world.files.delete(paths[:1]) == 1
    assert world.files.delete(paths[:1]) == (0 if world.tells_what_was_there else 1)
    assert world.files.delete([*paths, *paths]) == (1 if world.tells_what_was_there else 2)
    assert [f for f in world.files.files(TABLE) if f"/{LOG}/" not in f.path] == []


@pytest.mark.parametrize("oldest", [0, 19, 20, 30, 44])
def test_a_log_is_trimmed_below_what_is_needed_and_not_above(world: TableWithFiles, runs: Runs, oldest: int) -> None:
    world.long_line(runs)
    wanted = world.live(*range(oldest, RUNS))
    gone = world.trim(oldest)
    assert gone > 0 if oldest >= 20 else gone >= 0
    assert gone == 0 or oldest > 0
    assert world.live(*range(oldest, RUNS)) == wanted
    assert world.trim(oldest) == 0, "a repetition finds nothing"


def test_a_trimmed_table_takes_further_commits_and_is_trimmed_again(world: TableWithFiles, runs: Runs) -> None:
    made = world.long_line(runs)
    world.trim(30)
    for number in range(RUNS + 1, RUNS + 30):
        made.append(world.commit(number, made[-1]))
    wanted = world.live(60)
    assert world.trim(60) > 0
    assert world.live(60) == wanted
    with pytest.raises(StoreError):
        list(world.fresh().history(TABLE).live([30]))


def test_other_readers_see_the_same_in_a_trimmed_table(disk: TableWithFiles, runs: Runs, tmp_path: Path) -> None:
    disk.long_line(runs)
    at = str(tmp_path / TABLE)
    wanted = {v: sorted(DeltaTable(at, version=v).file_uris()) for v in range(25, RUNS)}
    disk.trim(25)
    assert min(int(p.name[:20]) for p in (tmp_path / TABLE / LOG).glob("*.json")) in (19, 25)
    assert {v: sorted(DeltaTable(at, version=v).file_uris()) for v in range(25, RUNS)} == wanted


def test_a_trim_that_died_halfway_is_finished(disk: TableWithFiles, runs: Runs) -> None:
    disk.long_line(runs)
    wanted = disk.live(40)
    prefix = log_prefix(TABLE, disk.log(), 40)
    assert prefix is not None
    disk.files.ensure_log_checkpoint(TABLE, prefix.until)
    for count in (1, 7, len(prefix.files) // 2, len(prefix.files) - 1):
        disk.files.delete(f.path for f in prefix.files[:count])
        assert disk.live(40) == wanted
    disk.trim(40)
    assert log_prefix(TABLE, disk.log(), 40) is None


@pytest.mark.parametrize("tear", [None, b"", b"{", b"\0\0", b"[]"])
def test_a_history_ends_before_a_hole_and_before_a_torn_commit(
    disk: TableWithFiles, tmp_path: Path, tear: bytes | None
) -> None:
    disk.line(5)
    wanted = disk.live(0, 1)
    path = tmp_path / TABLE / LOG / f"{2:020d}.json"
    path.unlink() if tear is None else path.write_bytes(tear)
    why = "missing after version 1" if tear is None else "commit 2 is torn"
    found = disk.fresh().history(TABLE)
    assert found.newest == 1
    assert disk.live(0, 1) == wanted
    for version in (2, 4):
        with pytest.raises(StoreError, match=why):
            disk.live(version)


def test_a_log_that_begins_in_the_middle_stops_everything(disk: TableWithFiles, tmp_path: Path) -> None:
    disk.line(5)
    for version in (0, 2):
        (tmp_path / TABLE / LOG / f"{version:020d}.json").unlink()
    with pytest.raises(StoreError, match="begins at 1, without a Delta log checkpoint"):
        disk.fresh().history(TABLE)


def test_a_path_out_of_the_warehouse_is_refused(world: TableWithFiles) -> None:
    if isinstance(world.driver, MemoryTablesDriver):
        return
    for path in ("../x", "/etc/passwd", "a/../../x", ""):
        with pytest.raises(NameRefusedError):
            world.files.delete([path])


@pytest.mark.slow
def test_data_files_in_a_bucket_go_by_the_thousand_and_those_of_a_log_in_their_order(
    in_bucket: TableWithFiles, bucket: Bucket
) -> None:
    in_bucket.line(3)
    many = [f"{TABLE}/9.1/part-{n}.parquet" for n in range(2500)]
    for path in many[:3]:
        bucket.put(f"house/{path}", b"x")
    log = [f.path for f in in_bucket.log()]
    requests = bucket.server.proxy.requests
    requests.clear()
    assert in_bucket.files.delete([*many, *log]) == 2500 + len(log)
    assert len(requests) == 2 + len(log), "the third batch ends with the first file of the log"
    assert {f.path for f in in_bucket.files.files(TABLE)} == {f"{TABLE}/{n}.1/part-0.parquet" for n in (1, 2, 3)}


PARTLY = b"""<DeleteResult><Error><Key>house/p/1.parquet</Key><Code>AccessDenied</Code></Error></DeleteResult>"""


@pytest.mark.slow
@pytest.mark.parametrize(("answer", "words"), [(403, "denies access"), (PARTLY, "/p/1.parquet: S3 answers")])
def test_a_bucket_that_refuses_to_delete_is_told_and_a_repetition_goes_on(
    in_bucket: TableWithFiles, bucket: Bucket, answer: int | bytes, words: str
) -> None:
    in_bucket.line(2)
    paths = [f.path for f in in_bucket.files.files(TABLE) if f"/{LOG}/" not in f.path]
    bucket.server.proxy.rule = lambda request: answer if request.method == "POST" else None
    with pytest.raises(StoreError, match=words) as caught:
        in_bucket.files.delete(paths)
    assert "s3:DeleteObject" in caught.value.next
    bucket.server.proxy.reset()
    assert in_bucket.files.delete(paths) == 2
    assert [f for f in in_bucket.files.files(TABLE) if f"/{LOG}/" not in f.path] == []


@pytest.mark.slow
def test_replies_that_are_lost_and_a_store_that_stutters_change_no_history(
    in_bucket: TableWithFiles, bucket: Bucket
) -> None:
    in_bucket.line(4)
    wanted = in_bucket.files.history(TABLE)
    for fault in (503, Fault.DROP_REPLY, Fault.CUT_BODY):
        bucket.server.proxy.rule = Times(fault, 2, "GET")
        assert in_bucket.fresh().history(TABLE) == wanted


def test_empty_folders_go_with_their_last_file(disk: TableWithFiles, tmp_path: Path) -> None:
    disk.line(1)
    disk.files.delete([f"{TABLE}/1.1/part-0.parquet"])
    assert not (tmp_path / TABLE / "1.1").exists()
    assert (tmp_path / TABLE / LOG).is_dir()
