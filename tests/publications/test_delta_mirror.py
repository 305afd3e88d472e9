"""A mirror has the state of its checkpoint at every version, whatever others do to it that moves rows only."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType

from tests.publications.mirror_walk import COLUMNS, KEYS, MirrorWalk, read, to_keys, to_rows
from tidemark.errors import StoreError, TargetChangedError
from tidemark.model.retention.publication_records import Replaceable
from tidemark.ports import PutOutcome
from tidemark.ports.publishing import Difference, StatePart, Step
from tidemark.publications import delta_mirror
from tidemark.publications.delta_log import LOG, DeltaLog, path_of
from tidemark.publications.delta_mirror import DeltaMirrorTable
from tidemark.publications.mirror_files import clean_up
from tidemark.publications.target_folder import TargetFolder
from tidemark.storage.s3_folder import S3Folder

SEED = int(os.environ.get("TIDEMARK_TEST_SEED", "20261126"))
NOTHING = to_keys([])
SETTINGS = {
    "delta.appendOnly": "true",
    "delta.columnMapping.mode": "name",
    "delta.enableChangeDataFeed": "true",
    "delta.setTransactionRetentionDuration": "interval 1 days",
}
READER = """
import json, sys
import pyarrow
from deltalake import DeltaTable, QueryBuilder
table = DeltaTable(sys.argv[1], storage_options=json.loads(sys.argv[2]))
found = QueryBuilder().register("t", table).execute("SELECT n, balance FROM t").read_all()
print(json.dumps([(row["n"], int(row["balance"])) for row in pyarrow.table(found).to_pylist()]))
"""
"""Reads a mirror in a process of its own, because the proxy in front of the store needs this one."""


@pytest.fixture
def walk(tmp_path: Path) -> MirrorWalk:
    return _walk(tmp_path, 0)


def _walk(path: Path, n: int, *, deletion_vectors: bool = True) -> MirrorWalk:
    print(f"seed {SEED}; TIDEMARK_TEST_SEED={SEED}")
    made = MirrorWalk(path / "mirror", random.Random(f"{SEED} {n}"), deletion_vectors)
    made.state = {(b, n): n for b in "ab" for n in range(10)}
    made.rebuild()
    return made


@pytest.mark.parametrize("deletion_vectors", [True, False])
@pytest.mark.parametrize("n", range(6))
def test_every_version_has_the_state_of_its_publication(
    tmp_path: Path, n: int, deletion_vectors: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta_mirror, "_SMALL_FILES", 5)
    monkeypatch.setattr(delta_mirror, "ROWS_PER_FILE", 8)
    walk = _walk(tmp_path, n, deletion_vectors=deletion_vectors)
    moves = [walk.publish, walk.publish, walk.publish, walk.lose, walk.wake, walk.maintain, walk.rebuild]
    for _ in range(25):
        walk.chance.choices(moves, (4, 4, 4, 2, 2, 3, 1))[0]()
        assert deletion_vectors or not any(f.vector for f in DeltaLog(walk.mirror.folder).newest().files.values())
    walk.check()


def test_the_half_of_the_small_files_with_the_fewest_live_rows_is_merged(
    walk: MirrorWalk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta_mirror, "_SMALL_FILES", 6)

    def publish(rows: dict[tuple[str, int], int]) -> set[str]:
        before = set(walk.mirror.log.newest().files)
        step = _next(walk)
        walk.state = {**walk.state, **rows}
        walk.done(walk.mirror.apply(step, lambda: _difference(rows)))
        return set(walk.mirror.log.newest().files) - before

    made = [publish({("c", 10 * n + k): k for k in range(5)}) for n in range(4)]
    touched = {("c", 10 * n + k): 7 for n in (1, 3) for k in range(3)}
    new, left = publish(touched), set(walk.mirror.log.newest().files)
    assert (len(new), len(left)) == (2, 5), "the changed rows, and one file in place of two"
    assert made[0] | made[2] <= left
    assert not (made[1] | made[3]) & left
    walk.check()


@dataclass(frozen=True)
class Overtaken(TargetFolder):
    """A folder in which `rivals` act one by one, each before a put of an entry."""

    rivals: list[Callable[[], object]] = field(default_factory=list)

    def put(self, path: str, body: bytes) -> PutOutcome:
        if path.startswith(LOG) and self.rivals:
            self.rivals.pop(0)()
        return super().put(path, body)


def test_a_rival_with_the_same_publication_comes_first_to_the_log(walk: MirrorWalk) -> None:
    step, difference, state = walk.change()
    walk.state = state
    folder = Overtaken(str(walk.path), [lambda: walk.done(walk.mirror.apply(step, lambda: difference))])
    applied = replace(walk.mirror, folder=folder).apply(step, lambda: difference)
    assert (applied.version, applied.bytes, walk.version) == ("1", 0, 1)
    walk.check()


def test_a_later_publication_comes_first_to_the_log(walk: MirrorWalk) -> None:
    step, difference, state = walk.change()

    def overtake() -> None:
        walk.state = state
        walk.done(walk.mirror.apply(step, lambda: difference))
        walk.publish()

    applied = replace(walk.mirror, folder=Overtaken(str(walk.path), [overtake])).apply(step, lambda: difference)
    assert (applied.version, applied.bytes, walk.version) == ("2", 0, 2)
    walk.check()


def test_rows_that_move_while_an_entry_is_made_are_looked_up_again(walk: MirrorWalk) -> None:
    walk.mirror.apply(_next(walk), lambda: _difference({("a", 3): 7}))
    walk.number, walk.state = walk.number + 1, {**walk.state, ("a", 3): 7}
    step, difference, state = walk.change()
    compact = DeltaTable(str(walk.path)).optimize.compact
    applied = replace(walk.mirror, folder=Overtaken(str(walk.path), [compact])).apply(step, lambda: difference)
    walk.state = state
    walk.done(applied)
    assert applied.version == "3"
    walk.check()


def test_a_rebuild_that_is_overtaken_by_maintenance_reads_the_state_once(walk: MirrorWalk) -> None:
    walk.mirror.apply(_next(walk), lambda: _difference({("a", 3): 7}))
    step, reads, rows = replace(_next(walk), number=3, previous=2, lineage="new"), list[int](), to_rows(walk.state)

    def tables() -> list[pa.Table]:
        reads.append(1)
        return [rows]

    compact = DeltaTable(str(walk.path)).optimize.compact
    applied = replace(walk.mirror, folder=Overtaken(str(walk.path), [compact])).replace(
        step, [StatePart(name="all", read=tables)]
    )
    assert (applied.version, reads) == ("3", [1])
    assert read(walk.path, 3) == walk.state


def test_a_one_key_change_marks_one_row(walk: MirrorWalk) -> None:
    before = DeltaLog(walk.mirror.folder).newest()
    walk.mirror.apply(_next(walk), lambda: _difference({("a", 3): 7}))
    after = DeltaLog(walk.mirror.folder).newest()
    (old,) = before.files
    assert after.files[old].deleted == 1
    assert len(after.files) == 2
    assert after.live_rows == before.live_rows == 20


def test_an_erased_key_is_in_no_live_file(walk: MirrorWalk) -> None:
    walk.mirror.apply(_next(walk), lambda: _difference({("a", 3): 7}))
    walk.number += 1
    # The old value is behind a deletion vector, and the key has come back since it was erased.
    walk.mirror.apply(
        _next(walk), lambda: Difference(upserts=to_rows({("a", 3): 8}), deletes=NOTHING, erased=to_keys([("a", 3)]))
    )
    held = _stored(walk)
    assert [row["balance"] for row in held if (row["bank"], row["n"]) == ("a", 3)] == [8]
    assert len(held) == 20


def test_a_change_of_rows_by_others_stops_publications_until_a_rebuild(walk: MirrorWalk) -> None:
    DeltaTable(str(walk.path)).delete("n = 3")
    for _ in range(2):
        with pytest.raises(TargetChangedError, match=r"MIRROR_CHANGED.*changed rows") as caught:
            walk.mirror.apply(_next(walk), lambda: _difference({("a", 1): 7}))
        assert caught.value.next.startswith("tidemark publication rebuild bank balances ")
    with pytest.raises(TargetChangedError, match="MIRROR_CHANGED"):
        walk.rebuild()
    walk.rebuild(Replaceable.OWN)
    walk.publish()
    walk.check()


def test_a_commit_that_only_claims_to_move_rows_is_found_out(walk: MirrorWalk) -> None:
    (path,) = DeltaLog(walk.mirror.folder).newest().files
    remove = {"path": path, "deletionTimestamp": 1, "dataChange": False}
    (walk.path / path_of(1)).write_text(json.dumps({"remove": remove}) + "\n")
    with pytest.raises(TargetChangedError, match=r"MIRROR_CHANGED.*0 rows, and its newest publication left 20"):
        walk.publish()


def test_other_columns_are_found_out(walk: MirrorWalk) -> None:
    DeltaTable(str(walk.path)).alter.add_columns([Field("more", PrimitiveType("integer"))])
    with pytest.raises(TargetChangedError, match="its columns are others"):
        walk.publish()


def test_features_that_a_mirror_cannot_have_are_refused_by_a_rebuild_too(walk: MirrorWalk) -> None:
    DeltaTable(str(walk.path)).alter.set_table_properties({"delta.appendOnly": "true"}, raise_if_not_exists=False)
    _is_refused(walk, "has the table features appendOnly")


@pytest.mark.parametrize(("name", "value"), list(SETTINGS.items()))
def test_settings_that_a_mirror_cannot_have_are_refused_by_a_rebuild_too(
    walk: MirrorWalk, name: str, value: str
) -> None:
    metadata = DeltaLog(walk.mirror.folder).newest().metadata
    metadata["configuration"][name] = value
    (walk.path / path_of(1)).write_text(json.dumps({"metaData": metadata}) + "\n")
    _is_refused(walk, f"has the setting {name}")


def test_a_gap_in_the_log_is_an_error(walk: MirrorWalk) -> None:
    walk.publish()
    walk.publish()
    (walk.path / path_of(1)).unlink()
    with pytest.raises(StoreError, match="commit 1 is missing"):
        walk.publish()


def test_a_publication_whose_entry_is_gone_is_a_change(walk: MirrorWalk) -> None:
    walk.publish()
    DeltaTable(str(walk.path)).create_checkpoint()
    for version in (0, 1):
        (walk.path / path_of(version)).unlink()
    with pytest.raises(TargetChangedError, match="no longer in the log"):
        walk.publish()


def test_a_log_checkpoint_in_parts_is_read_once_all_are_there(walk: MirrorWalk) -> None:
    walk.publish()
    DeltaTable(str(walk.path)).create_checkpoint()
    log, whole = DeltaLog(walk.mirror.folder), walk.path / f"{LOG}{1:020d}.checkpoint.parquet"
    expected, rows = log.newest(), pq.read_table(whole)
    whole.unlink()
    for part, (start, stop) in enumerate(((0, 2), (2, rows.num_rows)), 1):
        assert log.newest().files == expected.files, "by its commits"
        pq.write_table(
            rows.slice(start, stop - start), whole.with_name(f"{1:020d}.checkpoint.{part:010d}.{2:010d}.parquet")
        )
    for version in (0, 1):
        (walk.path / path_of(version)).unlink()
    found = log.newest()
    assert (found.files, found.publications, found.lineage) == (expected.files, expected.publications, walk.lineage)


def test_a_table_of_others_is_left_alone(tmp_path: Path) -> None:
    walk = MirrorWalk(tmp_path / "mirror", random.Random(1))
    write_deltalake(str(walk.path), pa.table({"x": [1]}))
    with pytest.raises(TargetChangedError, match="that this publication has not made"):
        walk.rebuild(Replaceable.OWN)
    assert DeltaTable(str(walk.path)).version() == 0
    walk.states.clear()
    walk.rebuild(Replaceable.ANY)
    walk.publish()
    walk.check()


def test_the_end_of_a_publication_fences_its_earlier_steps_and_leaves_the_rows(walk: MirrorWalk) -> None:
    step, difference, _ = walk.change()
    rows = DeltaLog(walk.mirror.folder).newest().files
    made = walk.mirror.drop(replace(step, number=2))
    assert (made.version, walk.version) == ("1", 1)
    assert walk.mirror.apply(step, lambda: difference).bytes == 0
    found = DeltaLog(walk.mirror.folder).newest()
    assert (found.version, found.files) == (1, rows)
    assert MirrorWalk(walk.path.with_name("none"), walk.chance).mirror.drop(step).version == ""


def test_a_restored_table_is_found_out(walk: MirrorWalk) -> None:
    walk.publish()
    DeltaTable(str(walk.path)).restore(0)
    with pytest.raises(TargetChangedError, match="MIRROR_CHANGED"):
        walk.publish()


def test_a_warehouse_from_a_backup_does_not_continue_another_lineage(walk: MirrorWalk) -> None:
    theirs = Step(
        number=2, previous=1, lineage="of a backup", previous_lineage="of a backup", checkpoint=9, timeline="t1"
    )
    with pytest.raises(TargetChangedError, match="MIRROR_CHANGED"):
        walk.mirror.apply(theirs, lambda: _difference({("a", 1): 7}))


def test_a_planted_publisher_without_the_fence_is_found(walk: MirrorWalk, monkeypatch: pytest.MonkeyPatch) -> None:
    walk.state = {**walk.state, ("c", 1): 1}
    step, difference = _next(walk), _difference({("c", 1): 1})
    walk.done(walk.mirror.apply(step, lambda: difference))
    walk.state = {**walk.state, ("c", 1): 2}
    walk.done(walk.mirror.apply(_next(walk), lambda: _difference({("c", 1): 2})))
    walk.check()
    monkeypatch.setattr(DeltaMirrorTable, "_refuse_changed", lambda *_: None)
    walk.mirror.apply(replace(step, number=walk.number + 1), lambda: difference)
    walk.states[walk.version] = walk.state
    with pytest.raises(AssertionError, match="version 3"):
        walk.check()


def _is_refused(walk: MirrorWalk, why: str) -> None:
    with pytest.raises(TargetChangedError, match=f"MIRROR_CHANGED.*{why}"):
        walk.publish()
    with pytest.raises(TargetChangedError, match=f"{why}.*which a mirror cannot have"):
        walk.rebuild(Replaceable.OWN)


def _next(walk: MirrorWalk) -> Step:
    number = walk.number
    return Step(
        number=number + 1,
        previous=number,
        lineage=walk.lineage,
        previous_lineage=walk.lineage,
        checkpoint=number,
        timeline="t1",
    )


def _difference(upserts: dict[tuple[str, int], int]) -> Difference:
    return Difference(upserts=to_rows(upserts), deletes=NOTHING, erased=NOTHING)


def _stored(walk: MirrorWalk) -> list[dict[str, object]]:
    """All rows of live files, those behind deletion vectors included."""
    live = DeltaLog(walk.mirror.folder).newest().files
    return [row for path in live for row in pq.read_table(walk.path / path).to_pylist()]


def test_a_rebuild_goes_on_with_the_parts_that_were_written(tmp_path: Path) -> None:
    walk, read = MirrorWalk(tmp_path / "mirror", random.Random(1)), list[int]()
    walk.state = {("a", n): n for n in range(9)}
    step = Step(number=1, previous=0, lineage="x", previous_lineage="", checkpoint=1, timeline="t1")

    def part(n: int, *, fails: bool = False) -> StatePart:
        def rows() -> list[pa.Table]:
            if fails:
                raise RuntimeError
            read.append(n)
            return [to_rows({key: n for key, n in list(walk.state.items())[3 * n : 3 * n + 3]})]

        return StatePart(name=str(n), read=rows)

    with pytest.raises(RuntimeError):
        walk.mirror.replace(step, [part(0), part(1), part(2, fails=True)])
    walk.done(walk.mirror.replace(step, [part(0), part(1), part(2)]))
    assert read == [0, 1, 2]
    walk.check()


def test_a_clean_up_deletes_what_no_version_names_any_more(walk: MirrorWalk) -> None:
    (walk.path / "part-000000000001-of a failed try.zstd.parquet").write_bytes(b"left")
    for _ in range(6):
        walk.publish()
    before = set(walk.mirror.folder.list(""))
    assert clean_up(walk.mirror.folder, walk.mirror.application) == [], "every commit is there"
    table = DeltaTable(str(walk.path))
    table.create_checkpoint()
    for _ in range(3):
        walk.publish()
    for version in range(table.version()):
        (walk.path / path_of(version)).unlink()
    walk.states = {version: state for version, state in walk.states.items() if version >= table.version()}
    gone = clean_up(walk.mirror.folder, walk.mirror.application)
    assert "part-000000000001-of a failed try.zstd.parquet" in gone
    assert any(path.startswith("_tidemark/") for path in gone)
    assert set(gone) < before
    walk.check()
    walk.publish()
    walk.check()


def test_a_mirror_in_a_bucket(folder: S3Folder) -> None:
    made = count(1)
    mirror = DeltaMirrorTable(
        folder=TargetFolder(folder),
        application="tidemark/bank/balances",
        keys=KEYS,
        columns=COLUMNS,
        now_ms=lambda: next(made),
        make_id=uuid4,
    )
    state = {("a", n): n for n in range(30)}
    first = Step(number=1, previous=0, lineage="x", previous_lineage="", checkpoint=1, timeline="t1")
    assert mirror.replace(first, [StatePart(name="all", read=lambda: [to_rows(state)])]).version == "0"
    second, difference = replace(first, number=2, previous=1, previous_lineage="x"), _difference({("a", 3): 7})
    assert mirror.apply(second, lambda: difference).version == "1"
    assert mirror.apply(second, lambda: difference).version == "1", "done before"
    for n in range(3, 12):  # beyond a Delta log checkpoint
        mirror.apply(replace(second, number=n, previous=n - 1), partial(_difference, {("a", n): 100}))
    options = folder.at().storage_options
    command = [sys.executable, "-c", READER, str(folder.at()), json.dumps(options)]
    rows = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout)
    assert len(rows) == 30
    expected = {n: 7 if n == 3 else n for n in range(30)} | dict.fromkeys(range(3, 12), 100)
    assert {n: int(balance) for n, balance in rows} == expected
