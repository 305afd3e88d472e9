"""The port `TableFiles`, held to one suite: dicts and the local disk; and what only a real log can do (fault 39)."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.contract.tables_drivers import TABLE, DeltaDriver, Driver, Fence, MemoryDriver, request
from tidemark.adapters.memory_table_files import MemoryTableFiles
from tidemark.adapters.table_files import LocalTableFiles
from tidemark.errors import NameRefusedError, StoreError
from tidemark.model.delta_logs import LOG, log_prefix
from tidemark.model.segments import Segment
from tidemark.model.shared_state import StoredFile
from tidemark.ports import TableFiles

RUNS = 45


@dataclass
class World:
    """A table with a driver that commits, and the port."""

    driver: Driver
    files: TableFiles
    fresh: Callable[[], TableFiles]

    def commit(self, number: int, parent: Segment | None, **options: object) -> Segment:
        return self.driver.tables.commit(
            request(self.driver.write(number, 1), number, parent, **options), Fence()
        ).segment

    def line(self, count: int) -> list[Segment]:
        """So many runs, each on top of the one before."""
        made: list[Segment] = []
        for number in range(1, count + 1):
            made.append(self.commit(number, made[-1] if made else None))
        return made

    def log(self) -> list[StoredFile]:
        return [f for f in self.files.files(TABLE) if f"/{LOG}/" in f.path]

    def trim(self, oldest: int) -> int:
        """What a sweep does to a log; the number of files that went."""
        prefix = log_prefix(TABLE, self.log(), oldest)
        if prefix is None:
            return 0
        if prefix.lacks_checkpoint:
            self.files.write_log_checkpoint(TABLE, prefix.until)
        return self.files.delete(f.path for f in prefix.files)

    def live(self, version: int) -> set[str]:
        ((_, found),) = self.fresh().history(TABLE).live([version])
        return {f.path for f in found}


@pytest.fixture(params=["memory", "local"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    if request.param == "memory":
        memory = MemoryDriver()
        return World(memory, MemoryTableFiles(memory.tables), lambda: MemoryTableFiles(memory.tables))
    return World(DeltaDriver(tmp_path), LocalTableFiles(str(tmp_path)), lambda: LocalTableFiles(str(tmp_path)))


@pytest.fixture
def disk(tmp_path: Path) -> World:
    return World(DeltaDriver(tmp_path), LocalTableFiles(str(tmp_path)), lambda: LocalTableFiles(str(tmp_path)))


def test_a_history_is_what_every_version_names(world: World) -> None:
    one, two, _ = world.line(3)
    foreign = next(iter(world.driver.live()))
    world.driver.foreign_removal(foreign)
    world.commit(4, two)
    history = world.files.history(TABLE)
    assert (history.oldest, history.newest) == (0, 4)
    versions = dict(history.live(range(5)))
    for version, found in versions.items():
        assert {f.path for f in found} == {f"{TABLE}/{path}" for path in world.driver.live(version)}, version
    assert {f.path for f in versions[one.version]} == {f"{TABLE}/1.1/part-0.parquet"} or len(versions[0]) == 1
    assert any(f.removed is not None and f.path.endswith(foreign) for f in history.files), "removed, and added again"


def test_a_history_goes_on_where_it_ended(world: World) -> None:
    made = world.line(2)
    assert world.files.history(TABLE).newest == 1
    world.commit(3, made[-1])
    assert world.files.history(TABLE) == world.fresh().history(TABLE)


def test_a_table_that_nobody_committed_to_has_no_versions(world: World) -> None:
    assert world.files.history("p/state/u/t1-9/runs").newest == -1
    assert list(world.files.files("p/state/u/t1-9")) == []
    with pytest.raises(StoreError, match="nobody knows"):
        list(world.files.history("p/state/u/t1-9/runs").live([0]))


def test_deleting_what_is_gone_is_no_error(world: World) -> None:
    world.line(2)
    paths = [f.path for f in world.files.files(TABLE) if f.path.endswith(".parquet") and LOG not in f.path]
    assert world.files.delete(paths[:1]) == 1
    assert world.files.delete(paths[:1]) == 0
    assert world.files.delete([*paths, *paths]) == 1
    assert [f for f in world.files.files(TABLE) if f"/{LOG}/" not in f.path] == []


@pytest.mark.parametrize("oldest", [0, 19, 20, 30, 44])
def test_a_log_is_trimmed_below_what_is_needed_and_not_above(world: World, oldest: int) -> None:
    world.line(RUNS)
    wanted = {v: world.live(v) for v in range(oldest, RUNS)}
    gone = world.trim(oldest)
    assert gone > 0 if oldest >= 20 else gone >= 0
    assert gone == 0 or oldest > 0
    assert {v: world.live(v) for v in range(oldest, RUNS)} == wanted
    assert world.trim(oldest) == 0, "a repetition finds nothing"


def test_a_trimmed_table_takes_further_commits_and_is_trimmed_again(world: World) -> None:
    made = world.line(RUNS)
    world.trim(30)
    for number in range(RUNS + 1, RUNS + 30):
        made.append(world.commit(number, made[-1]))
    wanted = world.live(60)
    assert world.trim(60) > 0
    assert world.live(60) == wanted
    with pytest.raises(StoreError):
        list(world.fresh().history(TABLE).live([30]))


def test_other_readers_see_the_same_in_a_trimmed_table(disk: World, tmp_path: Path) -> None:
    disk.line(RUNS)
    at = str(tmp_path / TABLE)
    wanted = {v: sorted(DeltaTable(at, version=v).file_uris()) for v in range(25, RUNS)}
    disk.trim(25)
    assert min(int(p.name[:20]) for p in (tmp_path / TABLE / LOG).glob("*.json")) in (19, 25)
    assert {v: sorted(DeltaTable(at, version=v).file_uris()) for v in range(25, RUNS)} == wanted


def test_a_trim_that_died_halfway_is_finished(disk: World) -> None:
    disk.line(RUNS)
    wanted = disk.live(40)
    prefix = log_prefix(TABLE, disk.log(), 40)
    assert prefix is not None
    if prefix.lacks_checkpoint:
        disk.files.write_log_checkpoint(TABLE, prefix.until)
    for count in (1, 7, len(prefix.files) // 2, len(prefix.files) - 1):
        disk.files.delete(f.path for f in prefix.files[:count])
        assert disk.live(40) == wanted
    disk.trim(40)
    assert log_prefix(TABLE, disk.log(), 40) is None


def test_a_hole_in_a_log_stops_everything(disk: World, tmp_path: Path) -> None:
    disk.line(5)
    (tmp_path / TABLE / LOG / f"{2:020d}.json").unlink()
    with pytest.raises(StoreError, match="hole behind version 1"):
        disk.fresh().history(TABLE)
    (tmp_path / TABLE / LOG / f"{0:020d}.json").unlink()
    with pytest.raises(StoreError, match="without a Delta log checkpoint"):
        disk.fresh().history(TABLE)


def test_a_path_out_of_the_warehouse_is_refused(disk: World) -> None:
    for path in ("../x", "/etc/passwd", "a/../../x", ""):
        with pytest.raises(NameRefusedError):
            disk.files.delete([path])


def test_empty_folders_go_with_their_last_file(disk: World, tmp_path: Path) -> None:
    disk.line(1)
    disk.files.delete([f"{TABLE}/1.1/part-0.parquet"])
    assert not (tmp_path / TABLE / "1.1").exists()
    assert (tmp_path / TABLE / LOG).is_dir()
