"""A mirror has the state of its checkpoint at every version, whatever others do to it that moves rows only."""

import json
import os
import random
import subprocess
import sys
from dataclasses import replace
from itertools import count
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.publications.mirror_walk import COLUMNS, KEYS, MirrorWalk, to_keys, to_rows
from tidemark.publications import delta_mirror
from tidemark.publications.delta_log import DeltaLog
from tidemark.publications.delta_mirror import DeltaMirrorTable, Difference, Step, TargetChangedError
from tidemark.publications.target_folder import TargetFolder
from tidemark.storage.s3_folder import S3Folder

SEED = int(os.environ.get("TIDEMARK_TEST_SEED", "20261126"))
NOTHING = to_keys([])
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
    walk.check()


def test_a_one_key_change_marks_one_row(walk: MirrorWalk) -> None:
    before = DeltaLog(walk.mirror.folder).newest()
    walk.mirror.apply(_next(walk), _difference({("a", 3): 7}))
    after = DeltaLog(walk.mirror.folder).newest()
    (old,) = before.files
    assert after.files[old].deleted == 1
    assert len(after.files) == 2
    assert after.live_rows == before.live_rows == 20


def test_an_erased_key_is_in_no_live_file(walk: MirrorWalk) -> None:
    walk.mirror.apply(_next(walk), _difference({("a", 3): 7}))
    walk.number += 1
    # The old value is behind a deletion vector, and the key has come back since it was erased.
    walk.mirror.apply(
        _next(walk), Difference(upserts=to_rows({("a", 3): 8}), deletes=NOTHING, erased=to_keys([("a", 3)]))
    )
    held = _stored(walk)
    assert [row["balance"] for row in held if (row["bank"], row["n"]) == ("a", 3)] == [8]
    assert len(held) == 20


def test_a_change_of_rows_by_others_stops_publications_until_a_rebuild(walk: MirrorWalk) -> None:
    DeltaTable(str(walk.path)).delete("n = 3")
    for _ in range(2):
        with pytest.raises(TargetChangedError, match=r"MIRROR_CHANGED.*changed rows") as caught:
            walk.mirror.apply(_next(walk), _difference({("a", 1): 7}))
        assert "rebuild" in caught.value.next
    walk.rebuild()
    walk.publish()
    walk.check()


def test_a_table_of_others_is_left_alone(tmp_path: Path) -> None:
    walk = MirrorWalk(tmp_path / "mirror", random.Random(1))
    write_deltalake(str(walk.path), pa.table({"x": [1]}))
    with pytest.raises(TargetChangedError, match="that this publication has not made"):
        walk.rebuild()
    assert DeltaTable(str(walk.path)).version() == 0


def test_a_restored_table_is_found_out(walk: MirrorWalk) -> None:
    walk.publish()
    DeltaTable(str(walk.path)).restore(0)
    with pytest.raises(TargetChangedError, match="MIRROR_CHANGED"):
        walk.publish()


def test_a_warehouse_from_a_backup_does_not_continue_another_lineage(walk: MirrorWalk) -> None:
    theirs = Step(number=2, previous=1, lineage="of a backup", checkpoint=9, timeline="t1")
    with pytest.raises(TargetChangedError, match="MIRROR_CHANGED"):
        walk.mirror.apply(theirs, _difference({("a", 1): 7}))


def test_a_planted_publisher_without_the_fence_is_found(walk: MirrorWalk, monkeypatch: pytest.MonkeyPatch) -> None:
    walk.state = {**walk.state, ("c", 1): 1}
    step, difference = _next(walk), _difference({("c", 1): 1})
    walk.done(walk.mirror.apply(step, difference))
    walk.state = {**walk.state, ("c", 1): 2}
    walk.done(walk.mirror.apply(_next(walk), _difference({("c", 1): 2})))
    walk.check()
    monkeypatch.setattr(DeltaMirrorTable, "_refuse_changed", lambda *_: None)
    walk.mirror.apply(replace(step, number=walk.number + 1), difference)
    walk.states[walk.version] = walk.state
    with pytest.raises(AssertionError, match="version 3"):
        walk.check()


def _next(walk: MirrorWalk) -> Step:
    number = walk.number
    return Step(number=number + 1, previous=number, lineage=walk.lineage, checkpoint=number, timeline="t1")


def _difference(upserts: dict[tuple[str, int], int]) -> Difference:
    return Difference(upserts=to_rows(upserts), deletes=NOTHING, erased=NOTHING)


def _stored(walk: MirrorWalk) -> list[dict[str, object]]:
    """All rows of live files, those behind deletion vectors included."""
    live = DeltaLog(walk.mirror.folder).newest().files
    return [row for path in live for row in pq.read_table(walk.path / path).to_pylist()]


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
    first = Step(number=1, previous=0, lineage="x", checkpoint=1, timeline="t1")
    assert mirror.replace(first, lambda: [to_rows(state)]).version == 0
    second, difference = replace(first, number=2, previous=1), _difference({("a", 3): 7})
    assert mirror.apply(second, difference).version == 1
    assert mirror.apply(second, difference).version == 1, "done before"
    for n in range(3, 12):  # beyond a Delta log checkpoint
        mirror.apply(replace(second, number=n, previous=n - 1), _difference({("a", n): 100}))
    options = folder.at().storage_options
    command = [sys.executable, "-c", READER, str(folder.at()), json.dumps(options)]
    rows = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout)
    assert len(rows) == 30
    expected = {n: 7 if n == 3 else n for n in range(30)} | dict.fromkeys(range(3, 12), 100)
    assert {n: int(balance) for n, balance in rows} == expected
