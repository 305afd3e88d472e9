"""SIGKILL of `tidemark compact` at every step boundary, and of a replay: no answer changes, a re-run goes through."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.faults.test_sweep import lines
from tests.support.killed_pipeline import KilledFold, KilledPipeline, KilledPipelines
from tidemark.environment import SystemClock
from tidemark.model.checkpoint.store_objects import CompactionRecord, JobRecord
from tidemark.operations import reads
from tidemark.tables.delta_tables import DeltaTables

__all__ = ["lines"]
pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]
KINDS = {"compact": "accounts", "compact_rows": "accounts~dead_letters"}
"""Whose files are merged at the steps of a kind; rows come first."""
STEPS = [
    step.replace("compact", kind)
    for kind in KINDS
    for step in ("compact.job", "compact.files", "compact.commit", "commit.compact", "compact.record")
]
PLACES = [f"{step}:{moment}" for step in STEPS for moment in ("before", "after")]
if os.environ.get("TIDEMARK_TEST_SWEEP") != "full":
    # Files without a commit, a commit without a record, and a record.
    PLACES = ["commit.compact:after", "compact.record:before", "compact.record:after"]
    PLACES += ["commit.compact_rows:after", "compact_rows.record:after"]


@pytest.fixture(scope="module")
def line(lines: KilledPipelines) -> KilledPipeline:
    """A line of one checkpoint, which grows from test to test."""
    made = lines.make(KilledFold)
    first = made.run()
    assert first.returncode == 0, first.stderr
    return made


def command(line: KilledPipeline, *arguments: str, crash_at: str | None = None) -> subprocess.CompletedProcess[str]:
    return line.started(*arguments, crash_at=crash_at).wait()


def records(line: KilledPipeline) -> list[CompactionRecord]:
    """Every compaction record; all files that it names must exist."""
    objects = line.context.coordinator("sweep").objects
    found = [objects.read(CompactionRecord, key) for key in objects.list("compactions/")]
    root = line.settings.warehouse
    assert isinstance(root, Path)
    tables = DeltaTables(warehouse=str(root), clock=SystemClock())
    for record in found:
        assert record is not None
        for segment in record.output:
            files = tables.files_of(segment)
            assert files and all((root / segment.path / f.path).is_file() for f in files), record.job
    return [r for r in found if r is not None]


def _made_for(line: KilledPipeline, owner: str) -> set[str]:
    return {record.job for record in records(line) if record.uid == owner}


def jobs(line: KilledPipeline) -> set[str]:
    """Names of the jobs that were opened."""
    objects = line.context.coordinator("sweep").objects
    found = [objects.read(JobRecord, key) for key in objects.list("jobs/")]
    return {job.job for job in found if job is not None}


@pytest.mark.parametrize("place", PLACES)
def test_a_killed_compaction_changes_no_answer_and_is_made_up_for(line: KilledPipeline, place: str) -> None:
    line.send()
    line.repair()
    owner = KINDS["compact_rows" if "compact_rows" in place else "compact"]
    before = _made_for(line, owner)
    killed = command(line, "compact", "sweep", "accounts", "--full", crash_at=place)
    assert killed.returncode == -signal.SIGKILL, f"{place} was not reached: {killed.stderr}"
    line.check()
    left = _made_for(line, owner) - before
    assert len(left) == place.endswith("record:after"), "a record is there only where it was put"
    again = command(line, "compact", "sweep", "accounts", "--full")
    assert again.returncode == 0, again.stderr
    line.check()
    made = _made_for(line, owner) - before - left
    assert len(made) == 1 and made <= jobs(line)
    line.send()
    line.repair()
    newest = reads.get_checkpoint(line.context, "sweep")
    (base, runs) = newest.handles["accounts"].segments
    assert base.path.endswith("/base") and runs.path.endswith("/runs"), "the next plan took it"
    (merged, appended) = newest.sealed.acks[0].dead_letters.segments
    assert merged.path == f"{appended.path}~base"
    assert newest.plan.adopted[owner].removesuffix(".json").rpartition("/")[2] in made | left


def test_a_killed_replay_leaves_a_folder_that_the_next_one_sweeps(line: KilledPipeline) -> None:
    assert isinstance(line.settings.warehouse, Path)
    scratch = line.settings.warehouse / "sweep" / "scratch"
    killed = command(line, "checkpoint", "replay", "sweep", "chk-1", crash_at="runs.accounts:after")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    (left,) = scratch.iterdir()
    assert any(left.rglob("*.parquet"))
    again = command(line, "checkpoint", "replay", "sweep", "chk-1", "--json")
    assert again.returncode == 0, again.stderr
    assert not scratch.exists()
    line.check()
