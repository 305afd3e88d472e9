"""Scratch folders: one's own while one lives, swept by whoever comes next once their owner was killed."""

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidemark.errors import StoreError
from tidemark.storage.scratch import OWNER, scratch_folder, sweep

HOLD = """
import sys, uuid
from pathlib import Path
from tidemark.storage.scratch import scratch_folder

root = Path(sys.argv[1])
with scratch_folder(root, "till", lambda: uuid.uuid4().hex) as folder:
    (root / folder / "state" / "runs").mkdir(parents=True)
    (root / folder / "state" / "runs" / "part-0.parquet").write_bytes(b"x")
    print(folder, flush=True)
    sys.stdin.read()
"""
CONTEND = """
import sys, uuid
from pathlib import Path
from tidemark.storage.scratch import scratch_folder

root = Path(sys.argv[1])
for n in range(60):
    with scratch_folder(root, "till", lambda: uuid.uuid4().hex) as folder:
        mark = root / folder / "mark"
        mark.write_text(str(n))
        for _ in range(20):
            assert mark.read_text() == str(n), "swept while it was held"
"""


def _id() -> str:
    return uuid.uuid4().hex


def _started(script: str, root: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", script, str(root)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture
def holders(tmp_path: Path) -> "Iterator[list[subprocess.Popen[str]]]":
    """Two processes, each in a scratch folder of its own."""
    found = [_started(HOLD, tmp_path) for _ in range(2)]
    yield found
    for process in found:
        process.kill()
        process.communicate()


def _folder(root: Path, holder: "subprocess.Popen[str]") -> Path:
    assert holder.stdout is not None
    line = holder.stdout.readline().strip()
    assert line, "the holder failed"
    return root / line


def test_a_killed_owners_folder_goes_and_a_living_ones_stays(
    tmp_path: Path, holders: "list[subprocess.Popen[str]]"
) -> None:
    dead, alive = (_folder(tmp_path, holder) for holder in holders)
    assert (dead / OWNER).read_text() == f"{holders[0].pid}\n"
    assert sweep(tmp_path) == []
    os.kill(holders[0].pid, signal.SIGKILL)
    holders[0].wait(30)
    assert (dead / "state" / "runs" / "part-0.parquet").exists(), "nobody has swept yet"
    with scratch_folder(tmp_path, "other", _id) as mine:
        assert not dead.exists()
        assert (alive / "state" / "runs" / "part-0.parquet").exists()
        assert mine.startswith("other/scratch/replay-")
    assert not (tmp_path / "other" / "scratch").exists()
    holders[1].communicate("", timeout=30)
    assert not (tmp_path / "till" / "scratch").exists()


def test_a_folder_without_a_lock_file_is_nobodys(tmp_path: Path) -> None:
    late = tmp_path / "till" / "scratch" / "5f2a" / "state"
    late.mkdir(parents=True)
    (late / "part-0.parquet").write_bytes(b"x")
    assert sweep(tmp_path) == [late.parent]
    assert not (tmp_path / "till" / "scratch").exists()
    assert sweep(tmp_path) == []


def test_an_owner_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="on the way"), scratch_folder(tmp_path, "till", _id) as folder:
        (tmp_path / folder / "x").write_bytes(b"x")
        raise ValueError("on the way")
    assert not (tmp_path / "till" / "scratch").exists()


def test_a_warehouse_that_takes_no_folder_says_so(tmp_path: Path) -> None:
    (tmp_path / "till").write_text("a file")
    with pytest.raises(StoreError, match="could not create a folder"), scratch_folder(tmp_path, "till", _id):
        pass


def test_owners_that_come_and_go_at_once_never_sweep_each_other(tmp_path: Path) -> None:
    contenders = [_started(CONTEND, tmp_path) for _ in range(4)]
    for process in contenders:
        _, told = process.communicate(timeout=120)
        assert process.returncode == 0, told
    assert not (tmp_path / "till" / "scratch").exists()
