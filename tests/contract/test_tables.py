"""The contract of `ports.StateTables`: compare-and-set, orphans out, parent files back, outcomes read back."""

import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from tests.support.s3 import MINIO, MOTO, SLOW_STORES, Bucket
from tests.support.s3_proxy import Fault, S3Request, Times
from tests.support.tables_drivers import (
    COLUMNS,
    TABLE,
    BucketTablesDriver,
    DeltaTablesDriver,
    Fence,
    MemoryTablesDriver,
    TablesDriver,
    request,
)
from tidemark.errors import ConflictError, FencedError, StoreError
from tidemark.model.checkpoint.commits import CommitRequest
from tidemark.storage.local_store import stage_folder
from tidemark.storage.s3_folder import S3Folder
from tidemark.tables import bucket_log, delta_tables
from tidemark.tables.delta_tables import DeltaTables
from tidemark.testing.twin.memory import ManualClock


@pytest.fixture
def in_bucket(bucket: Bucket, folder: S3Folder, tmp_path: Path) -> BucketTablesDriver:
    return BucketTablesDriver(tmp_path, folder=folder, bucket=bucket)


@pytest.fixture(params=["delta", "memory", *SLOW_STORES])
def driver(request: pytest.FixtureRequest, tmp_path: Path) -> TablesDriver:
    if request.param in (MOTO, MINIO):
        return _on_store(request, tmp_path)
    return DeltaTablesDriver(tmp_path) if request.param == "delta" else MemoryTablesDriver()


@pytest.fixture(params=["delta", *SLOW_STORES])
def delta(request: pytest.FixtureRequest, tmp_path: Path) -> DeltaTablesDriver:
    return DeltaTablesDriver(tmp_path) if request.param == "delta" else _on_store(request, tmp_path)


def _on_store(request: pytest.FixtureRequest, tmp_path: Path) -> BucketTablesDriver:
    bucket, folder = request.getfixturevalue("bucket_on")(request.param)
    return BucketTablesDriver(tmp_path, folder=folder, bucket=bucket)


def test_a_segment_grows_by_one_run_per_commit(driver: TablesDriver) -> None:
    first = driver.tables.commit(request(driver.write(1, 1), 1), Fence())
    second = driver.tables.commit(request(driver.write(3, 1, rows=5), 3, first.segment), Fence())
    assert (second.segment.after, second.segment.through, second.segment.rows, second.segment.files) == (0, 3, 8, 2)
    assert second.commit.version == first.commit.version + 1
    assert sorted(driver.live().values()) == [("0", "1"), ("0", "3")]
    assert [f.rows for f in driver.tables.live_files(first.segment)] == [3]
    assert [(f.level, f.checkpoint) for f in driver.tables.files_of(second.segment)] == [(0, 1), (0, 3)]


def test_orphans_of_an_abandoned_attempt_are_removed(driver: TablesDriver) -> None:
    first = driver.tables.commit(request(driver.write(1, 1), 1), Fence())
    driver.tables.commit(request(driver.write(2, 1), 2, first.segment, write_id="abandoned"), Fence())
    ours = driver.tables.commit(request(driver.write(2, 2, rows=4), 2, first.segment), Fence())
    assert ours.segment.rows == 7
    assert sorted(path.partition("/")[0] for path in driver.live()) == ["1.1", "2.2"]


def test_orphans_of_an_abandoned_first_commit_are_removed(driver: TablesDriver) -> None:
    driver.tables.commit(request(driver.write(1, 1), 1, write_id="abandoned"), Fence())
    ours = driver.tables.commit(request(driver.write(1, 2), 1), Fence())
    assert ours.segment.rows == 3
    assert [path.partition("/")[0] for path in driver.live()] == ["1.2"]


def test_rows_below_the_parents_range_are_removed(driver: TablesDriver) -> None:
    first = driver.tables.commit(request(driver.write(1, 1), 1), Fence())
    second = driver.tables.commit(request(driver.write(2, 1), 2, first.segment), Fence())
    size = second.segment.bytes - first.segment.bytes
    adopted = replace(second.segment, after=1, rows=3, bytes=size, files=1)
    third = driver.tables.commit(request(driver.write(3, 1), 3, adopted), Fence())
    assert (third.segment.after, third.segment.rows) == (1, 6)
    assert sorted(checkpoint for _, checkpoint in driver.live().values()) == ["2", "3"]
    assert [f.rows for f in driver.tables.live_files(second.segment)] == [3, 3], "older versions stay readable"


def test_a_foreign_removal_is_added_back(driver: TablesDriver) -> None:
    first = driver.tables.commit(request(driver.write(1, 1), 1), Fence())
    driver.foreign_removal(next(iter(driver.live())))
    assert driver.live() == {}
    second = driver.tables.commit(request(driver.write(2, 1), 2, first.segment), Fence())
    assert sorted(checkpoint for _, checkpoint in driver.live().values()) == ["1", "2"]
    assert second.segment.rows == 6


def test_a_foreign_addition_is_removed(driver: TablesDriver) -> None:
    first = driver.tables.commit(request(driver.write(1, 1), 1), Fence())
    driver.foreign_addition(1)
    second = driver.tables.commit(request(driver.write(2, 1), 2, first.segment), Fence())
    assert second.segment.files == len(driver.live()) == 2


def test_the_fence_is_asked_after_the_version_was_read_and_a_revoked_attempt_stops(driver: TablesDriver) -> None:
    first = driver.tables.commit(request(driver.write(1, 1), 1), Fence())

    def successor_commits_and_revokes(call: int) -> None:
        if call == 1:
            driver.tables.commit(request(driver.write(2, 2), 2, first.segment, write_id="successor"), Fence())
        else:
            raise FencedError("revoked", next="nothing.")

    zombie = Fence(successor_commits_and_revokes)
    with pytest.raises(FencedError):
        driver.tables.commit(request(driver.write(2, 1), 2, first.segment, write_id="zombie"), zombie)
    assert zombie.calls == 2
    assert sorted(path.partition("/")[0] for path in driver.live()) == ["1.1", "2.2"]


def test_a_conflict_is_tried_once_more_and_then_refused(driver: TablesDriver) -> None:
    first = driver.tables.commit(request(driver.write(1, 1), 1), Fence())
    once = Fence(lambda call: driver.foreign_addition(70 + call) if call == 1 else None)
    second = driver.tables.commit(request(driver.write(2, 1), 2, first.segment), once)
    assert (once.calls, second.segment.files, len(driver.live())) == (2, 2, 2)
    always = Fence(lambda call: driver.foreign_addition(80 + call))
    with pytest.raises(ConflictError):
        driver.tables.commit(request(driver.write(3, 1), 3, second.segment), always)
    assert always.calls == 2


def _revoked_by(driver: DeltaTablesDriver, other: CommitRequest) -> Fence:
    """Another attempt commits between the version and the commit; then this one finds itself revoked."""

    def other_is_first(call: int) -> None:
        if call == 1:
            driver.tables.commit(other, Fence())
        else:
            raise FencedError("revoked", next="nothing.")

    return Fence(other_is_first)


def test_two_first_commits_conflict(delta: DeltaTablesDriver) -> None:
    other = request(delta.write(1, 2), 1, write_id="other")
    with pytest.raises(FencedError):
        delta.tables.commit(request(delta.write(1, 1), 1, write_id="late"), _revoked_by(delta, other))
    assert [path.partition("/")[0] for path in delta.live()] == ["1.2"]


def test_rows_that_do_not_add_up_are_refused(driver: TablesDriver) -> None:
    with pytest.raises(StoreError):
        driver.tables.commit(request(driver.write(1, 1), 1, rows=4), Fence())


def test_a_lost_reply_is_read_back_by_write_id(delta: DeltaTablesDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    first = delta.tables.commit(request(delta.write(1, 1), 1), Fence())
    delta.fail_commits(monkeypatch, "connection reset", after=True)
    second = delta.tables.commit(request(delta.write(2, 1), 2, first.segment), Fence())
    assert second.commit.version == 1 and len(delta.live()) == 2


def test_a_commit_that_never_happened_is_no_success(delta: DeltaTablesDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    first = delta.tables.commit(request(delta.write(1, 1), 1), Fence())
    delta.fail_commits(monkeypatch, "No space left on device", after=False)
    with pytest.raises(StoreError, match="No space left"):
        delta.tables.commit(request(delta.write(2, 1), 2, first.segment), Fence())
    assert len(delta.live()) == 1


def test_another_schema_is_refused_and_not_silently_dropped(delta: DeltaTablesDriver) -> None:
    first = delta.tables.commit(request(delta.write(1, 1), 1), Fence())
    wider = (*COLUMNS, ("more", "STRING"))
    with pytest.raises(StoreError, match="schema"):
        delta.tables.commit(request(delta.write(2, 1), 2, first.segment, schema=wider), Fence())


def test_an_input_file_that_is_gone_stops_the_commit(delta: DeltaTablesDriver) -> None:
    files = delta.write(1, 1)
    first = delta.tables.commit(request(files, 1), Fence())
    delta.gone(files[0].path)
    with pytest.raises(StoreError, match="are gone"):
        delta.tables.commit(request(delta.write(2, 1), 2, first.segment), Fence())


def test_a_compaction_replaces_only_what_it_names(driver: TablesDriver) -> None:
    deep = driver.tables.commit(request(driver.write(1, 1), 1, level=2), Fence())
    small = driver.tables.commit(request(driver.write(2, 1), 2, deep.segment, level=1), Fence())
    (old,) = [f.path for f in driver.tables.files_of(small.segment) if f.checkpoint == 2]
    done = driver.tables.commit(request(driver.write(4, 1), 4, small.segment, level=1, drop=(old,)), Fence())
    assert sorted(driver.live().values()) == [("1", "4"), ("2", "1")]
    assert (done.segment.after, done.segment.through, done.segment.files) == (0, 4, 2)


def test_a_commit_is_durable_only_as_it_was_made(delta: DeltaTablesDriver) -> None:
    done = delta.tables.commit(request(delta.write(1, 1), 1), Fence())
    (log,) = delta.logs()
    assert hashlib.sha256(log).hexdigest() == done.commit.sha256
    delta.tables.make_durable([done.commit], [f"{TABLE}/1.1"])
    delta.overwrite(f"_delta_log/{0:020d}.json", log.replace(b"tidemark_uid", b"tidemark_uiD"))
    with pytest.raises(StoreError, match="not the one"):
        delta.tables.make_durable([done.commit], [f"{TABLE}/1.1"])


def test_tables_are_plain_and_keep_their_logs(delta: DeltaTablesDriver) -> None:
    delta.tables.commit(request(delta.write(1, 1), 1), Fence())
    table = delta.table()
    assert (table.protocol().min_reader_version, table.protocol().min_writer_version) == (1, 2)
    assert table.metadata().configuration["delta.enableExpiredLogCleanup"] == "false"
    (log,) = delta.logs()
    assert [json.loads(line) for line in log.splitlines()][0]["commitInfo"]["write_id"] == f"{1:032x}"
    assert table.transaction_version("p/t1/u") == 2**20


@pytest.mark.slow
@pytest.mark.parametrize("fault", [Fault.DROP_REPLY, Fault.NOT_SENT, 503, 409])
def test_a_commit_in_a_bucket_counts_once_whatever_becomes_of_its_reply(
    in_bucket: BucketTablesDriver, fault: Fault | int
) -> None:
    first = in_bucket.tables.commit(request(in_bucket.write(1, 1), 1), Fence())
    fails = Times(fault, 1, "PUT", r"_delta_log/\d{20}\.json")
    in_bucket.bucket.server.proxy.rule = fails
    second = in_bucket.tables.commit(request(in_bucket.write(2, 1), 2, first.segment), Fence())
    assert fails.met == 1
    assert (second.commit.version, len(in_bucket.logs())) == (1, 2), "neither lost nor doubled"
    assert sorted(path.partition("/")[0] for path in in_bucket.live()) == ["1.1", "2.1"]


@pytest.mark.slow
def test_two_attempts_that_commit_to_a_bucket_with_lost_replies_leave_one_run(in_bucket: BucketTablesDriver) -> None:
    first = in_bucket.tables.commit(request(in_bucket.write(1, 1), 1), Fence())

    other = request(in_bucket.write(2, 2), 2, first.segment, write_id="other")
    in_bucket.bucket.server.proxy.rule = Times(Fault.DROP_REPLY, 2, "PUT", r"_delta_log/\d{20}\.json")
    with pytest.raises(FencedError):
        in_bucket.tables.commit(request(in_bucket.write(2, 1), 2, first.segment), _revoked_by(in_bucket, other))
    assert sorted(path.partition("/")[0] for path in in_bucket.live()) == ["1.1", "2.2"]


@pytest.mark.slow
def test_a_commit_that_listings_hide_is_found_by_the_next_one(in_bucket: BucketTablesDriver) -> None:
    """A stale listing costs a lost put: the name of the hidden version is taken."""
    first = in_bucket.tables.commit(request(in_bucket.write(1, 1), 1), Fence())
    in_bucket.tables.commit(request(in_bucket.write(2, 1), 2, first.segment, write_id="hidden"), Fence())
    in_bucket.bucket.server.proxy.hidden = re.compile(rf"_delta_log/{1:020d}")
    other = DeltaTables(warehouse=in_bucket.folder, clock=ManualClock())  # a process that made no commit before
    with pytest.raises(ConflictError):
        other.commit(request(in_bucket.write(2, 2), 2, first.segment), Fence())
    in_bucket.bucket.server.proxy.reset()
    in_bucket.tables.commit(request(in_bucket.write(2, 3), 2, first.segment), Fence())
    assert sorted(path.partition("/")[0] for path in in_bucket.live()) == ["1.1", "2.3"]


@pytest.mark.slow
def test_what_a_process_committed_last_is_not_read_again(in_bucket: BucketTablesDriver) -> None:
    """However long the log is: its own entry, the next one, which must not exist, and the put."""
    done = in_bucket.tables.commit(request(in_bucket.write(1, 1), 1), Fence())
    proxy = in_bucket.bucket.server.proxy
    for checkpoint in range(2, 6):
        files = in_bucket.write(checkpoint, 1)
        proxy.requests.clear()
        done = in_bucket.tables.commit(request(files, checkpoint, done.segment), Fence())
        log = [method for method, path in proxy.requests if "_delta_log" in path.replace("%2F", "/")]
        if checkpoint > 2:  # the first one was made with the table, by deltalake
            assert sorted(log) == ["GET", "GET", "PUT"], proxy.requests
    assert len(in_bucket.live()) == 5


@pytest.mark.slow
def test_a_table_that_was_begun_again_under_its_path_is_read_again(in_bucket: BucketTablesDriver) -> None:
    done = in_bucket.tables.commit(request(in_bucket.write(1, 1), 1), Fence())
    in_bucket.tables.commit(request(in_bucket.write(2, 1), 2, done.segment), Fence())
    for name in in_bucket.bucket.objects(f"house/{TABLE}/"):
        in_bucket.bucket.remove(f"house/{TABLE}/{name}")
    other = DeltaTables(warehouse=in_bucket.folder, clock=ManualClock())
    begun = other.commit(request(in_bucket.write(1, 7), 1, write_id="begun again"), Fence())
    again = other.commit(request(in_bucket.write(2, 7), 2, begun.segment, write_id="and again"), Fence())
    third = in_bucket.tables.commit(request(in_bucket.write(3, 7), 3, again.segment), Fence())
    assert third.commit.version == 2
    assert sorted(path.partition("/")[0] for path in in_bucket.live()) == ["1.7", "2.7", "3.7"]


@pytest.mark.slow
def test_an_entry_of_ours_says_what_an_entry_of_deltalake_says(in_bucket: BucketTablesDriver, tmp_path: Path) -> None:
    on_disk = DeltaTablesDriver(tmp_path / "disk")
    for driver in (on_disk, in_bucket):
        first = driver.tables.commit(request(driver.write(1, 1), 1), Fence())
        second = driver.tables.commit(request(driver.write(2, 1), 2, first.segment), Fence())
        replaced = [f.path for f in driver.tables.files_of(second.segment)]
        driver.tables.commit(request(driver.write(3, 1), 3, second.segment, level=1, drop=tuple(replaced)), Fence())
    for expected, found in zip(on_disk.logs()[1:], in_bucket.logs()[1:], strict=True):
        assert _told(found) == _told(expected)
    assert in_bucket.live() == on_disk.live()


def _told(entry: bytes) -> list[tuple[str, dict[str, object]]]:
    """The actions of an entry without times, makers and nulls, ordered."""
    left_out = {"timestamp", "engineInfo", "clientVersion", "modificationTime", "deletionTimestamp", "lastUpdated"}
    found = []
    for line in entry.splitlines():
        for kind, body in json.loads(line).items():
            kept = {name: value for name, value in body.items() if value is not None and name not in left_out}
            if kind == "commitInfo":
                kept["tidemark_sha256"] = sorted(json.loads(kept["tidemark_sha256"]))
            found.append((kind, kept))
    return sorted(found, key=lambda each: json.dumps(each, sort_keys=True))


@pytest.mark.slow
def test_every_twentieth_commit_has_a_log_checkpoint(in_bucket: BucketTablesDriver) -> None:
    done = in_bucket.tables.commit(request(in_bucket.write(1, 1), 1), Fence())
    for checkpoint in range(2, 23):
        done = in_bucket.tables.commit(request(in_bucket.write(checkpoint, 1), checkpoint, done.segment), Fence())
    names = [name.rpartition("/")[2] for name in in_bucket.bucket.objects(f"house/{TABLE}/_delta_log/")]
    assert [name for name in names if "checkpoint." in name] == [f"{19:020d}.checkpoint.parquet"]
    assert len(in_bucket.table().file_uris()) == 22


@pytest.mark.slow
def test_a_later_commit_of_another_process_is_seen_before_the_next_one_is_tried(in_bucket: BucketTablesDriver) -> None:
    """The fence is checked again behind it: the first answer may be older than the later commit (adr/0071)."""
    first = in_bucket.tables.commit(request(in_bucket.write(1, 1), 1), Fence())
    second = in_bucket.tables.commit(request(in_bucket.write(2, 1), 2, first.segment), Fence())
    in_bucket.foreign_addition(70)
    once = Fence()
    third = in_bucket.tables.commit(request(in_bucket.write(3, 1), 3, second.segment), once)
    assert (once.calls, third.commit.version) == (2, second.commit.version + 2)
    assert sorted(path.partition("/")[0] for path in in_bucket.live()) == ["1.1", "2.1", "3.1"]


def _zombie_that_remembers(driver: BucketTablesDriver, monkeypatch: pytest.MonkeyPatch) -> tuple[Fence, CommitRequest]:
    """An attempt whose process knows the newest version, and its fence.

    The fence passes, and only then a later attempt revokes this one and commits, before the process has proved that the
    version which it knows is the newest one.
    """
    first = driver.tables.commit(request(driver.write(1, 1), 1), Fence())
    second = driver.tables.commit(request(driver.write(2, 1), 2, first.segment), Fence())
    later = DeltaTables(warehouse=driver.folder, clock=ManualClock())  # the process of the later attempt
    of_later = request(driver.write(3, 2), 3, second.segment, write_id="successor")
    passed, really = Event(), bucket_log.is_newest

    def is_newest(*about: Any) -> bool:
        assert passed.wait(60)
        return really(*about)

    def between(call: int) -> None:
        if call > 1:
            raise FencedError("revoked", next="nothing.")
        later.commit(of_later, Fence())
        passed.set()

    monkeypatch.setattr(delta_tables, "is_newest", is_newest)
    return Fence(between), request(driver.write(3, 1), 3, second.segment, write_id="zombie")


@pytest.mark.slow
def test_an_attempt_that_is_revoked_behind_its_look_commits_nothing(
    in_bucket: BucketTablesDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    fence, zombie = _zombie_that_remembers(in_bucket, monkeypatch)
    with pytest.raises(FencedError):
        in_bucket.tables.commit(zombie, fence)
    assert sorted(path.partition("/")[0] for path in in_bucket.live()) == ["1.1", "2.1", "3.2"]


@pytest.mark.slow
def test_it_would_commit_if_the_fence_were_not_checked_behind_a_later_version(
    in_bucket: BucketTablesDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted bug of that order: the answer from before the later version is taken for one from behind it."""
    fence, zombie = _zombie_that_remembers(in_bucket, monkeypatch)
    monkeypatch.setattr(DeltaTables, "_checked", lambda self, request, before, fence: self._planned(request, before))
    in_bucket.tables.commit(zombie, fence)
    assert "3.2" not in {path.partition("/")[0] for path in in_bucket.live()}, "the later attempt's run is gone"


@pytest.mark.slow
def test_a_revoked_attempt_that_knows_the_newest_version_stops_although_nothing_was_committed(
    in_bucket: BucketTablesDriver,
) -> None:
    first = in_bucket.tables.commit(request(in_bucket.write(1, 1), 1), Fence())
    second = in_bucket.tables.commit(request(in_bucket.write(2, 1), 2, first.segment), Fence())

    def revoked(call: int) -> None:
        raise FencedError("revoked", next="nothing.")

    with pytest.raises(FencedError):
        in_bucket.tables.commit(request(in_bucket.write(3, 1), 3, second.segment), Fence(revoked))
    assert len(in_bucket.logs()) == 2


@pytest.mark.slow
def test_a_file_that_was_sent_is_not_read_again_unless_the_store_does_not_confirm_its_bytes(
    in_bucket: BucketTablesDriver, tmp_path: Path
) -> None:
    """The hash in the commit is that of the bytes in the store in each case."""
    proxy, sent = in_bucket.bucket.server.proxy, b"rows" * 1000
    expected = hashlib.sha256(sent).hexdigest()
    (tmp_path / "part").write_bytes(sent)
    for name, is_confirmed in (("plain", True), ("encrypted", False)):
        proxy.requests.clear()
        proxy.etag = None if is_confirmed else '"of a ciphertext"'
        assert in_bucket.folder.send_compared(f"{TABLE}/{name}", tmp_path / "part")
        methods = [method for method, _ in proxy.requests]
        assert methods == (["PUT"] if is_confirmed else ["PUT", "GET"])
        assert in_bucket.folder.hash_as_sent(f"{TABLE}/{name}") == expected
        assert len(proxy.requests) == len(methods)
        assert in_bucket.folder.hash_as_sent(f"{TABLE}/{name}") == expected, "from the store the second time"
    proxy.reset()


@pytest.mark.slow
def test_a_file_that_arrives_altered_is_refused(in_bucket: BucketTablesDriver, tmp_path: Path) -> None:
    def alters(request: S3Request) -> None:
        if request.method == "PUT":
            request.body = request.body.replace(b"rows", b"ROWS", 1)

    (tmp_path / "part").write_bytes(b"rows" * 1000)
    in_bucket.bucket.server.proxy.rule = alters
    with pytest.raises(StoreError, match="different bytes"), stage_folder(in_bucket.folder, f"{TABLE}/9.1") as staged:
        staged.mkdir()
        (staged / "part").write_bytes(b"rows" * 1000)
    in_bucket.bucket.server.proxy.reset()
