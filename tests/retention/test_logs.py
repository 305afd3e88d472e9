"""Logs of tables that grow old, are trimmed, and are read by others (P2-P5, fault 39)."""

import os
import re
from pathlib import Path

import duckdb
import pytest
from deltalake import DeltaTable

from tests.support.retention import ONE_FOLD, DiskRetentionPipeline
from tidemark.declare.retention import Retention
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.readers.state_reader import read_state

ROOT = Path(__file__).parents[2]
YEAR_MS = 365 * 86_400_000
COUNT = 30
"""Checkpoints."""
BANNED = r"\bVACUUM\b|\.vacuum\(|\bRESTORE TABLE\b|restoreTo(Version|Timestamp)\(|\bSHALLOW CLONE\b|cleanup_metadata"


def payments(retained: DiskRetentionPipeline, found: Checkpoint) -> dict[str, int]:
    """Payments per account, by the product's reader, which asks DuckDB."""
    made = read_state(str(retained.root), found.plan.schemas["accounts"], found.handles["accounts"], found.now)
    return {row["account"]: row["payments"] for row in made.to_pylist()}


def operands(retained: DiskRetentionPipeline, found: Checkpoint) -> int:
    """Over all accounts: DuckDB adds up the files that deltalake names; nothing of the product's is used."""
    files = []
    for s in found.handles["accounts"]:
        table = DeltaTable(str(retained.root / s.path), version=s.version)
        files += [uri for uri in table.file_uris() if s.after < _checkpoint_of(uri) <= s.through]
    rows = duckdb.connect().execute("select sum(payments) from read_parquet(?)", [files]).fetchone()
    assert rows is not None
    return int(rows[0])


def _checkpoint_of(uri: str) -> int:
    found = re.search(r"/(\d+)\.\d+/", uri)
    assert found is not None, uri
    return int(found[1])


@pytest.fixture
def retained(tmp_path: Path) -> DiskRetentionPipeline:
    """A year ago six checkpoints were made, and one was named; the others were made today."""
    made = DiskRetentionPipeline(tmp_path, ONE_FOLD)
    today = made.clock.ms
    made.clock.ms -= YEAR_MS
    for number in range(COUNT):
        if number == 6:
            made.save("old", 6)
            made.clock.ms = today
            for path in tmp_path.rglob("*.json"):
                if "_delta_log" in path.parts:
                    os.utime(path, ((today - YEAR_MS) / 1000,) * 2)
        made.checkpoint("a", *(("b",) if number % 2 else ()))
    return made


def test_a_log_of_a_year_loses_nothing_by_itself_and_its_needless_prefix_by_a_sweep(
    retained: DiskRetentionPipeline,
) -> None:
    (log,) = {p for p in retained.root.rglob("_delta_log") if "runs" in p.parts}
    DeltaTable(str(log.parent)).create_checkpoint()
    assert (log / f"{COUNT - 1:020d}.checkpoint.parquet").is_file(), "this is where Delta cleans up"
    assert [p.name for p in sorted(log.glob("*.json"))] == [f"{n:020d}.json" for n in range(COUNT)]
    kept = [retained.coordinator.checkpoint(n) for n in (6, COUNT)]
    wanted = [{"a": 6, "b": 3}, {"a": COUNT, "b": COUNT // 2}]
    assert [payments(retained, found) for found in kept] == wanted
    done = retained.sweep(Retention.keep_last(1))
    assert len(done.released) == COUNT - 2
    assert [payments(retained, found) for found in kept] == wanted
    assert [operands(retained, found) for found in kept] == [9, COUNT + COUNT // 2]
    retained.savepoints.dispose("old")
    assert retained.sweep(Retention.keep_last(1)).log_files > 20
    assert not (log / f"{6:020d}.json").exists()
    newest = retained.coordinator.checkpoint(COUNT)
    assert (payments(retained, newest), operands(retained, newest)) == (wanted[1], COUNT + COUNT // 2)
    assert payments(retained, retained.checkpoint("a")) == {"a": COUNT + 1, "b": COUNT // 2}


def test_no_verb_of_ours_leaves_a_deletion_a_restore_or_a_copy_to_delta() -> None:
    sources = [p for folder in ("include", "spark_jobs", "dags", "plugins") for p in (ROOT / folder).rglob("*.py")]
    assert len(sources) > 300
    found = [f"{p.relative_to(ROOT)}: {m[0]}" for p in sources for m in re.finditer(BANNED, p.read_text())]
    # A mirror is a table of its user's: its log follows the settings of that table.
    assert found == ["include/tidemark/publications/delta_mirror.py: cleanup_metadata"]
    assert re.search(BANNED, "spark.sql('VACUUM t RETAIN 0 HOURS')")
