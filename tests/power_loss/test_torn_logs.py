"""A log of a table that a power cut has torn: read meanwhile, mended by the next writer, never believed (redteam 1)."""

import json
import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict

import pytest
from deltalake import DeltaTable

from tests.power_loss.scenario import INTERVAL, PowerLossPipeline, short_logs
from tests.support.tables_drivers import TABLE, DeltaTablesDriver, Fence, MemoryTablesDriver, TablesDriver, request
from tidemark.declare.retention import Retention
from tidemark.engine.state.resolve_sql import resolve_state, union_of
from tidemark.engine.state.state_files import SparkWarehouse
from tidemark.errors import StoreError
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.segments import LOG, Segment, log_version
from tidemark.model.checkpoint.sinks import SinkTable
from tidemark.readers.sink_reader import read_sink
from tidemark.readers.state_reader import files_of, range_reader, read_state, stored_rows
from tidemark.storage.local_store import fsync
from tidemark.tables import log_repair as delta_durability
from tidemark.tables import log_repair as delta_mending
from tidemark.tables.local_table_files import LocalTableFiles
from tidemark.tables.log_repair import mend_commits

Tear = Callable[[Path], object]
TEARS: dict[str, Tear] = {
    "empty": lambda path: path.write_bytes(b""),
    "half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "gone": lambda path: path.unlink(),
}
torn = pytest.mark.parametrize("tear", TEARS.values(), ids=TEARS)


@pytest.fixture(autouse=True)
def _short() -> Iterable[None]:
    with short_logs():
        yield


@pytest.fixture
def line(tmp_path: Path) -> PowerLossPipeline:
    """A log with a Delta log checkpoint and a commit on top."""
    line = PowerLossPipeline(tmp_path, "a")
    for _ in range(INTERVAL + 1):
        line.checkpoint("ann", "bob")
    return line


def log_of(line: PowerLossPipeline, table: str = "runs") -> Path:
    return line.root / f"shelf/state/accounts/t1-1/{table}/_delta_log"


def copy_of(line: PowerLossPipeline) -> Path:
    (path,) = log_of(line).glob("*.checkpoint.parquet")
    return path


def payments(line: PowerLossPipeline, found: Checkpoint) -> int:
    """Of ann, by the product's reader."""
    rows = read_state(str(line.root), found.plan.schemas["accounts"], line.handle(found), found.now)
    return sum(row["payments"] for row in rows.to_pylist() if row["account"] == "ann")


def goes_on(line: PowerLossPipeline) -> None:
    """A checkpoint, a sweep and a compaction, as if nothing had been; then any reader of Delta opens the table."""
    line.checkpoint("ann")
    line.sweep(Retention.keep_last(2))
    line.merge()
    done = line.checkpoint("ann")
    assert payments(line, done) == line.paid.count("ann")
    plain = line.held(line.handle(done))
    assert sum(row["payments"] for row in plain if row["account"] == "ann") == line.paid.count("ann")


@torn
def test_a_hint_without_a_whole_log_checkpoint_is_no_hint(line: PowerLossPipeline, tear: Tear) -> None:
    tear(copy_of(line))
    newest = next(line.coordinator.checkpoints())
    with pytest.raises(Exception, match="Kernel error"):
        DeltaTable(str(log_of(line).parent))
    assert payments(line, newest) == INTERVAL + 1, "readers do not wait for a writer"
    goes_on(line)


@torn
def test_a_torn_hint_is_no_hint(line: PowerLossPipeline, tear: Tear) -> None:
    tear(log_of(line) / "_last_checkpoint")
    goes_on(line)


@torn
def test_a_torn_commit_of_a_killed_attempt_stands_in_nobodys_way(line: PowerLossPipeline, tear: Tear) -> None:
    line.pay("ann")
    line.killed(("runs.accounts", "after"))
    line.killed(("runs.accounts", "after"))
    settled = line.handle(next(line.coordinator.checkpoints())).segments[-1].version
    tear(log_of(line) / f"{settled + 1:020d}.json")
    goes_on(line)


@torn
def test_a_copy_of_a_torn_commit_goes_with_it(tmp_path: Path, tear: Tear) -> None:
    line = PowerLossPipeline(tmp_path, "a")
    for _ in range(INTERVAL - 1):
        line.checkpoint("ann")
    line.pay("ann")
    line.killed(("runs.accounts", "after"))
    assert copy_of(line).name.startswith(f"{INTERVAL - 1:020d}")
    tear(log_of(line) / f"{INTERVAL - 1:020d}.json")
    line.completed()
    assert list(log_of(line).glob("*.checkpoint.parquet")) == []
    goes_on(line)


@torn
def test_a_table_whose_first_commit_is_torn_begins_again(tmp_path: Path, tear: Tear) -> None:
    line = PowerLossPipeline(tmp_path, "a")
    line.pay("ann", "bob")
    line.killed(("runs.accounts", "after"))
    line.killed(("runs.accounts", "after"))
    tear(log_of(line) / f"{0:020d}.json")
    assert payments(line, line.completed()) == 1
    goes_on(line)


def test_what_was_set_aside_goes_with_the_log(line: PowerLossPipeline) -> None:
    line.pay("ann")
    line.killed(("runs.accounts", "after"))
    newest = log_of(line) / f"{INTERVAL + 1:020d}.json"
    TEARS["half"](newest)
    held = newest.read_bytes()
    line.completed()
    (aside,) = log_of(line).glob("*.torn")
    assert (aside.name, aside.read_bytes()) == (f"{newest.name}.torn", held)
    for _ in range(INTERVAL):
        line.checkpoint("ann")
    line.sweep(Retention.keep_last(1))
    assert list(log_of(line).glob("*.torn")) == []


def test_whole_commits_of_others_are_left_alone(line: PowerLossPipeline) -> None:
    line.pay("ann")
    line.killed(("runs.accounts", "after"))
    before = {p.name: p.read_bytes() for p in log_of(line).iterdir()}
    for settled in (-1, 0, INTERVAL, INTERVAL + 1, INTERVAL + 7):
        mend_commits(log_of(line).parent, settled)
    assert {p.name: p.read_bytes() for p in log_of(line).iterdir()} == before


def test_a_trimmed_log_is_not_taken_for_a_torn_one(line: PowerLossPipeline) -> None:
    line.sweep(Retention.keep_last(1))
    before = {p.name: p.read_bytes() for p in log_of(line).iterdir()}
    assert f"{0:020d}.json" not in before
    for settled in (-1, 0, 1, INTERVAL):
        mend_commits(log_of(line).parent, settled)
    assert {p.name: p.read_bytes() for p in log_of(line).iterdir()} == before


def test_a_torn_commit_that_is_needed_is_named_and_not_touched(line: PowerLossPipeline) -> None:
    needed = log_of(line) / f"{INTERVAL:020d}.json"
    TEARS["half"](needed)
    held = needed.read_bytes()
    newest = next(line.coordinator.checkpoints())
    with pytest.raises(StoreError, match=f"{needed.name}: it is torn"):
        payments(line, newest)
    with pytest.raises(StoreError, match=f"{needed.name}: it is torn"):
        line.checkpoint("ann")
    assert needed.read_bytes() == held


# Completed means durable: what a version was built on, too.


def fsynced(monkeypatch: pytest.MonkeyPatch, module: Any) -> list[Path]:
    """Paths in the order in which a module fsyncs them."""
    paths = list[Path]()

    def noted(path: Path) -> None:
        paths.append(path)
        fsync(path)

    monkeypatch.setattr(module, "fsync", noted)
    return paths


def test_every_commit_that_ours_builds_on_is_fsynced(line: PowerLossPipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    line.pay("ann")
    for _ in range(2):
        line.killed(("runs.accounts", "after"))
    paths = fsynced(monkeypatch, delta_durability)
    done = line.completed()
    segment = line.handle(done).segments[-1]
    assert segment.version == INTERVAL + 3
    names = [p.name for p in paths if p.parent == log_of(line)]
    versions = {log_version(name) for name in names if name.endswith(".json")}
    assert versions == {INTERVAL + 1, INTERVAL + 2, INTERVAL + 3}, "above the parent's, up to ours"
    assert f"{2 * INTERVAL - 1:020d}.checkpoint.parquet" in names
    assert "_last_checkpoint" in names
    assert paths.index(log_of(line)) > max(paths.index(p) for p in paths if p.parent == log_of(line))


def test_a_log_is_durable_before_its_commits_are_deleted(
    line: PowerLossPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = list[str]()
    delete = LocalTableFiles.delete

    def noted(path: Path) -> None:
        order.append(path.name)
        fsync(path)

    def deleted(files: LocalTableFiles, paths: Iterable[str]) -> int:
        gone = list(paths)
        order.extend("deleted" for p in gone if f"/{LOG}/" in p)
        return delete(files, gone)

    monkeypatch.setattr(delta_mending, "fsync", noted)
    monkeypatch.setattr(LocalTableFiles, "delete", deleted)
    line.sweep(Retention.keep_last(1))
    first = order.index("deleted")
    assert {copy_of(line).name, "_last_checkpoint"} <= set(order[: first - 1])
    assert order[first - 1] == LOG, "names come last"


@torn
def test_a_torn_log_checkpoint_is_written_again_before_commits_are_deleted(line: PowerLossPipeline, tear: Tear) -> None:
    tear(copy_of(line))
    line.sweep(Retention.keep_last(1))
    assert not (log_of(line) / f"{0:020d}.json").exists()
    newest = next(line.coordinator.checkpoints())
    assert payments(line, newest) == INTERVAL + 1
    goes_on(line)


def test_a_log_checkpoint_that_says_something_else_is_written_again(line: PowerLossPipeline, tmp_path: Path) -> None:
    other = PowerLossPipeline(tmp_path / "other", "b")
    for _ in range(INTERVAL):
        other.checkpoint("eve")
    shutil.copy(copy_of(other), copy_of(line))
    LocalTableFiles(str(line.root)).ensure_log_checkpoint("shelf/state/accounts/t1-1/runs", INTERVAL - 1)
    line.sweep(Retention.keep_last(1))
    assert payments(line, next(line.coordinator.checkpoints())) == INTERVAL + 1


def test_no_hint_names_what_a_sweep_deletes(line: PowerLossPipeline) -> None:
    LocalTableFiles(str(line.root)).ensure_log_checkpoint("shelf/state/accounts/t1-1/runs", INTERVAL)
    hint = log_of(line) / "_last_checkpoint"
    older = hint.read_bytes()
    assert json.loads(older)["version"] == INTERVAL
    for _ in range(INTERVAL):
        line.checkpoint("ann")
    hint.write_bytes(older)  # the rename of the one after it was not durable
    line.sweep(Retention.keep_last(1))
    assert not (log_of(line) / f"{INTERVAL:020d}.checkpoint.parquet").exists()
    assert not hint.exists()
    goes_on(line)


def test_commits_that_came_back_below_a_trimmed_log_stop_nothing(line: PowerLossPipeline) -> None:
    back = log_of(line) / f"{0:020d}.json"
    held = back.read_bytes()
    line.sweep(Retention.keep_last(1))
    back.write_bytes(held)  # the deletion was not durable; those above it were
    goes_on(line)


# Readers compare a segment with the version that they open.


def lost_removal(line: PowerLossPipeline) -> Checkpoint:
    """A checkpoint below which a commit has lost its `remove`: rows of a killed attempt are back."""
    line.pay("ann")
    for _ in range(2):
        line.killed(("runs.accounts", "after"))
    done = line.completed()
    version = line.handle(done).segments[-1].version
    for path in log_of(line).glob("*.checkpoint.parquet"):
        path.unlink()
    (log_of(line) / "_last_checkpoint").unlink()
    (log_of(line) / f"{version - 1:020d}.json").write_bytes(b"")
    plain = line.held(line.handle(done))
    assert sum(row["payments"] for row in plain if row["account"] == "ann") == INTERVAL + 3, "doubled, silently"
    return done


def by_spark(line: PowerLossPipeline) -> SparkWarehouse:
    """As Spark reads; the files are compared before it is asked for anything."""
    no_session: Any = None
    return SparkWarehouse(session=no_session, root=str(line.root), files_of=line.tables.files_of)


def as_sink(line: PowerLossPipeline, found: Checkpoint) -> SinkTable:
    """The table as if it were a sink's."""
    handle = line.handle(found)
    columns = (("account", "STRING"),)
    return SinkTable(name="told", kind="delta", path=handle.segments[-1].path, columns=columns, handle=handle)


READERS: dict[str, Callable[[PowerLossPipeline, Checkpoint], object]] = {
    "the port": lambda line, c: line.tables.files_of(line.handle(c).segments[-1]),
    "the port's live files": lambda line, c: line.tables.live_files(line.handle(c).segments[-1]),
    "Spark": lambda line, c: resolve_state(by_spark(line), c.plan.schemas["accounts"], line.handle(c), c.now),
    "Spark, of a sink": lambda line, c: union_of(by_spark(line), as_sink(line, c)),
    "Arrow, of a sink": lambda line, c: read_sink(str(line.root), as_sink(line, c)),
    "DuckDB": payments,
    "DuckDB by ranges": lambda line, c: range_reader(str(line.root), c.plan.schemas["accounts"], line.handle(c), c.now),
    "stored rows": lambda line, c: stored_rows(str(line.root), c.plan.schemas["accounts"], line.handle(c)),
    "files": lambda line, c: files_of(str(line.root), line.handle(c)),
    "a compaction": lambda line, c: line.compacted(),
    "the next checkpoint": lambda line, c: line.checkpoint("ann"),
}


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_a_lost_removal_is_an_error_that_names_the_file(
    line: PowerLossPipeline, reader: Callable[[PowerLossPipeline, Checkpoint], object]
) -> None:
    done = lost_removal(line)
    version = line.handle(done).segments[-1].version
    with pytest.raises(StoreError, match=f"differs from its commit: .*{version - 1:020d}.json: it is empty"):
        reader(line, done)


@pytest.fixture(params=["memory", "delta"])
def driver(request: pytest.FixtureRequest, tmp_path: Path) -> TablesDriver:
    return MemoryTablesDriver() if request.param == "memory" else DeltaTablesDriver(tmp_path)


class Change(TypedDict, total=False):
    """Of a segment."""

    rows: int
    bytes: int
    files: int


@pytest.mark.parametrize("change", [{"rows": 4}, {"bytes": 1}, {"files": 2}], ids=lambda c: next(iter(c)))
def test_files_are_handed_out_only_as_they_were_committed(driver: TablesDriver, change: Change) -> None:
    made: Segment = driver.tables.commit(request(driver.write(1, 1), 1), Fence()).segment
    assert len(driver.tables.files_of(made)) == 1
    with pytest.raises(StoreError, match="differs from its commit"):
        driver.tables.files_of(replace(made, **change))
    assert made.path == TABLE


@torn
def test_a_torn_commit_of_a_killed_compaction_stops_no_sweep(line: PowerLossPipeline, tear: Tear) -> None:
    line.compacted()
    line.checkpoint("ann")
    line.compacted()  # whose record is lost with the power
    (record,) = [p for p in (line.root / "shelf/compactions/accounts").iterdir() if f".{INTERVAL + 2}." in p.name]
    record.unlink()
    tear(log_of(line, "base") / f"{1:020d}.json")
    line.sweep(Retention.keep_last(2))
    goes_on(line)
