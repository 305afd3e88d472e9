"""What a plan of retention costs: a thousand versions are read once, then only what was committed since (E15)."""

import json
import time
from pathlib import Path

import pytest

from tidemark.errors import StoreError
from tidemark.model.checkpoint.segments import Segment, StateHandle
from tidemark.model.core import canonical
from tidemark.model.retention.shared_state import Holder, SharedStateRegistry
from tidemark.storage.object_cache import LocalCache
from tidemark.tables import local_table_files as table_files
from tidemark.tables.local_table_files import LocalTableFiles

VERSIONS = 1000
KEPT = 30
"""Files that a version has; older ones were compacted."""
TABLE = "p/state/u/t1-1/runs"
SECONDS = 3.0


def commit(root: Path, version: int) -> None:
    """A run of one file; the oldest one goes."""
    values = {"_level": "0", "_checkpoint": str(version + 1)}
    add = {"path": f"{version + 1}.1/part-0.parquet", "partitionValues": values, "size": 10, "dataChange": True}
    actions: list[object] = [{"commitInfo": {"write_id": "w"}}, {"add": add}]
    if version >= KEPT:
        actions.append({"remove": {"path": f"{version + 1 - KEPT}.1/part-0.parquet"}})
    log = root / TABLE / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    (log / f"{version:020d}.json").write_text("\n".join(map(json.dumps, actions)))


def holder(version: int) -> Holder:
    after, number = max(0, version + 1 - KEPT), version + 1
    held = min(KEPT, version + 1)
    segment = Segment(after=after, through=number, path=TABLE, version=version, rows=held, bytes=10 * held, files=held)
    return Holder(name=f"chk-{number}", why=("kept",), handles=(StateHandle((segment,)),))


def counted_reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Versions whose commits are read from now on."""
    reads: list[int] = []
    commits = table_files._LocalLogs.commit

    def counted(logs: table_files._LocalLogs, table: str, version: int) -> bytes | None:
        reads.append(version)
        return commits(logs, table, version)

    monkeypatch.setattr(table_files._LocalLogs, "commit", counted)
    return reads


def test_a_thousand_versions_are_planned_in_time_and_a_new_one_costs_one_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in range(VERSIONS):
        commit(tmp_path, version)
    files, began = LocalTableFiles(str(tmp_path)), time.process_time()
    registry = SharedStateRegistry.of([holder(v) for v in range(VERSIONS)], files.history)
    assert time.process_time() - began < SECONDS
    assert len(registry.by_file) == VERSIONS
    assert len(registry.by_file[f"{TABLE}/500.1/part-0.parquet"]) == KEPT
    reads = counted_reads(monkeypatch)
    commit(tmp_path, VERSIONS)
    assert files.history(TABLE).newest == VERSIONS
    assert reads == [VERSIONS, VERSIONS + 1], "the new commit, and the look whether there is another one"
    files.history(TABLE)
    assert reads[2:] == []


def test_the_next_process_reads_what_was_committed_since_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, cache = tmp_path / "warehouse", LocalCache(tmp_path / "cache")
    for version in range(100):
        commit(root, version)
    first = LocalTableFiles(str(root), cache).history(TABLE)
    commit(root, 100)
    reads = counted_reads(monkeypatch)
    found = LocalTableFiles(str(root), cache).history(TABLE)
    assert reads == [99, 100, 101], "the commit that tells whether it is the same log, the new one, and a look behind"
    assert found == LocalTableFiles(str(root)).history(TABLE) != first


@pytest.mark.parametrize("harm", ["torn", "of another release", "another log", "trimmed", "gone"])
def test_a_log_that_the_cache_does_not_know_is_read_anew(tmp_path: Path, harm: str) -> None:
    root, folder = tmp_path / "warehouse", tmp_path / "cache"
    for version in range(60):
        commit(root, version)
    LocalTableFiles(str(root), LocalCache(folder)).history(TABLE)
    (kept,) = folder.iterdir()
    if harm == "torn":
        kept.write_bytes(kept.read_bytes()[:-40])
    elif harm == "of another release":
        body = canonical.decode("log_replay", kept.name, kept.read_bytes())
        kept.write_bytes(canonical.encode("log_replay", body | {"version": 99}))
    elif harm == "gone":
        kept.unlink()
    log = root / TABLE / "_delta_log"
    if harm == "another log":  # a warehouse that was made anew at the same place, with as many versions
        for path in log.iterdir():
            path.write_text(path.read_text().replace("part-0", "part-1"))
    if harm == "trimmed":
        (log / f"{0:020d}.json").unlink()
        with pytest.raises(StoreError, match="without a Delta log checkpoint"):
            LocalTableFiles(str(root), LocalCache(folder)).history(TABLE)
        return
    found = LocalTableFiles(str(root), LocalCache(folder)).history(TABLE)
    assert found == LocalTableFiles(str(root)).history(TABLE)
    assert all(("part-1" in f.path) == (harm == "another log") for f in found.files)
