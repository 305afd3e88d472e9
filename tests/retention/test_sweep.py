"""The sweep, step by step: killed anywhere, twice, with logs to trim, with files of nobody, with jobs that died."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from tests.retention.retention_bugs import BUGS
from tests.support.crashes import CrashAt, Killed
from tests.support.retention import ONE_FOLD, DiskRetentionPipeline, MemoryRetentionPipeline
from tidemark.coordinator.checkpoints.jobs import open_job
from tidemark.coordinator.records.tombstones import of_checkpoints
from tidemark.coordinator.retention.deletion_plan import sweeps_of
from tidemark.declare.retention import Retention
from tidemark.errors import ConflictError, ReleasedError, StoreError
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.store_objects import JobRecord
from tidemark.model.retention.sweep_records import SweptRecord
from tidemark.tables.integrity_check import TableChecks

KEEP = Retention.keep_last(1)


def line(retained: MemoryRetentionPipeline, count: int = 4) -> MemoryRetentionPipeline:
    """Checkpoints, the second one compacted, one savepoint that has expired."""
    for number in range(count):
        retained.checkpoint("a", "b")
        if number == 1:
            retained.merge()
    retained.save("over", 1, retained.clock.now_ms() + 1)
    retained.clock.advance(10)
    return retained


def ended(retained: MemoryRetentionPipeline) -> tuple[object, ...]:
    """What a sweep comes to."""
    gone = sorted(n for n, t in of_checkpoints(retained.coordinator.objects).items() if t.confirmed)
    return gone, sorted(retained.data()), [r.name for r in retained.savepoints.list()]


def points() -> list[str]:
    """Every crash point of a sweep, in order."""
    seen: list[str] = []
    line(MemoryRetentionPipeline()).sweep(KEEP, crash=lambda step, moment: seen.append(f"{step}:{moment}"))
    return seen


def test_a_sweep_passes_all_of_its_crash_points() -> None:
    steps = {point.partition(":")[0] for point in points()}
    assert steps >= {"sweep.tombstones", "sweep.decisions", "sweep.record", "sweep.files", "sweep.end", "tombstone"}


@pytest.mark.parametrize("nth", range(1, len(points()) + 1))
def test_a_sweep_that_dies_anywhere_comes_to_the_same_end_when_it_is_repeated(nth: int) -> None:
    wanted = line(MemoryRetentionPipeline())
    wanted.sweep(KEEP)
    died = line(MemoryRetentionPipeline())
    crash = CrashAt(nth)
    with pytest.raises(Killed):
        died.sweep(KEEP, crash=crash)
    assert all(died.readable(c) for c in died.coordinator.timelines.all() if c.id == 4), crash.at
    died.sweep(KEEP)
    assert ended(died) == ended(wanted), crash.at


@pytest.mark.parametrize("nth", [1, 4, 7, 11, 15, 18, 20])
def test_the_same_on_real_delta_tables(nth: int, tmp_path: Path) -> None:
    retained = DiskRetentionPipeline(tmp_path, ONE_FOLD)
    for number in range(4):
        found = retained.checkpoint("a", "b")
        if number == 1:
            retained.merge()
    rows = retained.rows(found)
    try:
        retained.sweep(KEEP, crash=CrashAt(nth))
    except Killed:
        retained.sweep(KEEP)
    assert retained.rows(found) == rows
    assert retained.data() == retained.named(found)
    assert not (tmp_path / "shelf/state/accounts/t1-1/runs/1.1").exists()


def test_files_wait_for_their_grace_time_and_checkpoints_do_not() -> None:
    retained = line(MemoryRetentionPipeline())
    had = retained.data()
    first = retained.sweep(KEEP, grace_ms=1000)
    assert (first.released, first.deleted) == (("chk-1", "chk-2", "chk-3"), ())
    assert retained.data() == had
    retained.clock.advance(999)
    assert retained.sweep(KEEP, grace_ms=1000).deleted == ()
    retained.clock.advance(1)
    assert {f.path for f in retained.sweep(KEEP, grace_ms=1000).deleted} == {f.path for f in first.waiting}


def test_a_clock_that_goes_back_deletes_nothing_early() -> None:
    retained = line(MemoryRetentionPipeline())
    retained.clock.advance(10**9)
    retained.sweep(KEEP, grace_ms=1000)
    retained.clock.ms -= 10**9
    assert retained.sweep(KEEP, grace_ms=1000).deleted == ()
    retained.clock.advance(1000)
    assert retained.sweep(KEEP, grace_ms=1000).deleted != ()


def test_every_sweep_says_what_it_did() -> None:
    retained = line(MemoryRetentionPipeline())
    done = retained.sweep(KEEP)
    number, record = sweeps_of(retained.coordinator).newest()
    assert record is not None
    assert (record.rule, record.released, set(record.free)) == (
        str(KEEP),
        done.released,
        {f.path for f in done.deleted},
    )
    swept = retained.coordinator.objects.read(SweptRecord, keys.swept_key(number))
    assert swept is not None
    assert (swept.files, swept.bytes) == (len(done.deleted), done.bytes)


def test_files_of_an_aborted_attempt_and_of_a_killed_compaction_go() -> None:
    retained = MemoryRetentionPipeline(pipeline=ONE_FOLD)
    retained.checkpoint("a")
    retained.tables.write("shelf/state/accounts/t1-1/base/accounts.1.dead", [{"account": "a"}])
    record = JobRecord(
        job="accounts.1.dead", kind="compaction", uid="accounts", checkpoint=1, opened_at_ms=0, write_id="w"
    )
    retained.coordinator.objects.put(keys.job_key(record.job), record)
    assert retained.sweep(KEEP).deleted == (), "it may still run, and its result be adopted"
    for _ in range(2):  # the first result covers the same range, the second one more: then it cannot be adopted
        retained.merge()
        retained.checkpoint("a")
    (orphan,) = [f for f in retained.sweep(KEEP).deleted if "dead" in f.path]
    assert orphan.why == "orphan: compaction accounts.1.dead ended without a result"


def test_a_file_of_nobody_is_left_alone_and_told_of() -> None:
    retained = line(MemoryRetentionPipeline())
    for path in ("runs/99.1/part-0.parquet", "runs/part-0.parquet", "base/who.knows/part-0.parquet"):
        retained.tables.files[f"shelf/state/accounts/t1-1/{path}"] = ({"x": 1},)
    plan = retained.plan(KEEP)
    assert len(plan.unknown) == 3
    retained.sweep(KEEP)
    assert {f.path for f in plan.unknown} <= retained.data()


def test_an_export_keeps_its_checkpoint_until_it_is_given_up() -> None:
    retained = line(MemoryRetentionPipeline())
    with open_job(retained.coordinator, "export", 1) as job:
        done = retained.sweep(KEEP)
        assert done.released == ("chk-2", "chk-3")
        (why,) = (k.why for k in done.plan.kept if "export" in k.why)
        assert why == f"export {job}, which is open"
        retained.clock.advance(timedelta(days=8) // timedelta(milliseconds=1))
        late = retained.sweep(KEEP)
        assert (late.ended, late.released) == ((job,), ("chk-1",))
    with pytest.raises(ConflictError, match="about to be deleted"), open_job(retained.coordinator, "export", 1):
        raise AssertionError("it reads what is released")


def test_a_log_is_trimmed_and_what_is_kept_stays_readable(tmp_path: Path) -> None:
    retained = DiskRetentionPipeline(tmp_path, ONE_FOLD)
    for _ in range(30):
        found = retained.checkpoint("a")
    rows, saved = retained.rows(found), retained.coordinator.checkpoint(24)
    held = retained.rows(saved)
    retained.save("old", 24)
    done = retained.sweep(KEEP)
    assert done.log_files > 15
    assert retained.rows(found) == rows
    assert retained.rows(saved) == held
    checks = TableChecks(str(tmp_path), content=True)
    segments = [s for c in (found, saved) for handle in c.handles.values() for s in handle]
    assert [dict(checks(s, {})) for s in segments] == [{}] * len(segments), "hashes of trimmed commits are not missed"
    assert retained.rows(retained.checkpoint("a")) != rows


def test_what_was_released_just_now_can_still_be_opened_by_who_reads_it(tmp_path: Path) -> None:
    retained = DiskRetentionPipeline(tmp_path, ONE_FOLD)
    old = retained.checkpoint("a")
    for _ in range(24):
        retained.checkpoint("a")
    rows = retained.rows(old)
    retained.sweep(KEEP, grace_ms=1000)
    assert retained.rows(old) == rows, "neither its files nor its log have gone yet"
    retained.clock.advance(1001)
    retained.sweep(KEEP, grace_ms=1000)
    assert not retained.readable(old)


def test_behind_a_damaged_manifest_or_log_nothing_is_deleted(tmp_path: Path) -> None:
    retained = DiskRetentionPipeline(tmp_path, ONE_FOLD)
    for _ in range(4):
        retained.checkpoint("a")
    had = retained.data()
    log = tmp_path / "shelf/state/accounts/t1-1/runs/_delta_log" / f"{2:020d}.json"
    kept = log.read_bytes()
    log.write_bytes(kept.replace(b'"add"', b'"bad"'))
    with pytest.raises(StoreError, match="the files in use are unknown"):
        DiskRetentionPipeline(tmp_path, ONE_FOLD).sweep(Retention.keep_last(2))
    log.write_bytes(kept)
    manifest = tmp_path / "shelf" / keys.slot_key("t1", 4)
    manifest.write_bytes(manifest.read_bytes()[:-9])
    done = DiskRetentionPipeline(tmp_path, ONE_FOLD).sweep(KEEP)
    assert ([bad.name for bad in done.plan.damaged], done.released, done.deleted) == (["chk-4"], (), ())
    assert retained.data() == had


def test_a_timeline_that_began_too_late_takes_no_checkpoint() -> None:
    """Its maker died between the genesis and the look for the tombstone, which was there first."""
    retained = line(MemoryRetentionPipeline())
    restore_point = retained.coordinator.checkpoint(1)
    retained.sweep(Retention.keep_last(3))
    late = replace(retained.recovery, coordinator=replace(retained.coordinator, files_exist=lambda handle: True))
    from tidemark.coordinator.plans.restore_point import RestorePoint

    with pytest.raises((ConflictError, ReleasedError)):
        late.fork(RestorePoint(checkpoint=restore_point), "late")
    with pytest.raises(ReleasedError, match="chk-1 was released"):
        retained.checkpoint("a", timeline="late")
    assert retained.sweep(KEEP).released == ("chk-2", "chk-3"), "it holds nothing"


@pytest.mark.parametrize("bug", ["ignore-forks"])
def test_a_planted_bug_shows_on_disk(bug: str, tmp_path: Path) -> None:
    retained = DiskRetentionPipeline(tmp_path, ONE_FOLD)
    for _ in range(3):
        retained.checkpoint("a")
    retained.fork("trial", 1)
    found = retained.checkpoint("b", timeline="trial")
    with BUGS[bug]():
        retained.sweep(KEEP)
    assert not retained.readable(found)
