"""A holder of a timeline that hangs blocks nobody past its timeout, and changes nothing when it wakes up (I9)."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from tests.support.sales_pipeline import SalesPipeline
from tidemark.errors import BusyError
from tidemark.storage.local_store import FileTimelineLock

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 300
HOUR, SECOND = timedelta(hours=1), timedelta(seconds=1)


def started(folder: Path, *at: str) -> "subprocess.Popen[str]":
    """`hung_holder.py` in a process of its own; the hash seed makes the code's fingerprint the same in all of them."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "include"), str(ROOT))), "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-m", "tests.cli.hung_holder", str(folder), *at]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env)


def said(process: "subprocess.Popen[str]") -> tuple[int, str]:
    """How it ended, and the last line that it printed: logs stand before it."""
    out, _ = process.communicate(timeout=SECONDS)
    return process.returncode, out.strip().rpartition("\n")[2]


@contextmanager
def stopped(folder: Path, *at: str) -> "Iterator[subprocess.Popen[str]]":
    """A process that stands still at a step; it is ended with the block."""
    process = started(folder, *at)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "stopped\n"
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("at", [("commit.runs.accounts", "before"), ("seal", "before"), ("publish", "before")])
def test_a_stopped_run_is_overtaken_once_its_time_is_over_and_fenced_when_it_wakes(
    tmp_path: Path, at: tuple[str, str]
) -> None:
    with stopped(tmp_path, "0", *at) as hung:
        assert said(started(tmp_path, "0")) == (4, f"BusyError timeline t1 is busy: process {hung.pid} holds it")
        code, out = said(started(tmp_path, "3600"))
        by = 1 if at[0] == "publish" else 2
        assert (code, out) == (0, f"made chk-1 by attempt {by}")
        os.kill(hung.pid, signal.SIGCONT)
        woken, answer = said(hung)
    if at[0] == "publish":  # sealed ahead of the stop: both publish the same bytes
        assert (woken, answer) == (0, out)
    else:
        assert (woken, answer.split()[0]) == (4, "FencedError")
    line = SalesPipeline.opened(tmp_path).line
    assert [(c.id, c.sealed.attempt) for c in line.coordinator.checkpoints()] == [(1, by)]


def test_who_waits_is_refused_until_then(tmp_path: Path) -> None:
    now = [1_000_000]
    lock = FileTimelineLock(tmp_path, lambda: now[0])
    with lock.hold("t1", HOUR) as held:
        with pytest.raises(BusyError, match=f"process {os.getpid()} holds it"), lock.hold("t1", HOUR):
            pytest.fail("held twice")
        held.renew(SECOND)
        now[0] += 1001
        with lock.hold("t1", HOUR):
            with pytest.raises(BusyError), lock.hold("t1", HOUR):
                pytest.fail("the one that took its place is not overtaken")
            held.renew(SECOND)
            now[0] += 2000
            with pytest.raises(BusyError), lock.hold("t1", HOUR):
                pytest.fail("what the first one writes counts no more")
    with lock.hold("t1", HOUR):
        pass


def test_a_lock_of_0_1_is_waited_for(tmp_path: Path) -> None:
    lock = FileTimelineLock(tmp_path, lambda: 10**15)
    with lock.hold("t1", SECOND) as held:
        os.ftruncate(held.handle, 0)
        os.pwrite(held.handle, b"4711\n", 0)
        with pytest.raises(BusyError, match="process 4711 holds it"), lock.hold("t1", SECOND):
            pytest.fail("nobody knows how long it may take")
