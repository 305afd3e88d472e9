"""Children are recognised by more than a number, and none escapes."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from devstack import control, processes
from devstack.addresses import choose_addresses, exclusive, is_free, record_process
from devstack.control import down, status
from devstack.processes import ProcessRecord
from tests.stack.homes import processes_of
from tidemark.embedded_services import recorded_service
from tidemark.settings import STACK_VARIABLE, Settings

SLEEPER = (sys.executable, "-c", "import time; time.sleep(600)")
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
)
# A leader whose child ignores SIGTERM and has left its process group.
LEADER = (
    sys.executable,
    "-c",
    f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {STUBBORN!r}], process_group=0);"
    "time.sleep(600)",
)
# A zombie at once, as a killed JVM is: its first thread has ended while another one still holds a port.
HEADLESS = (
    sys.executable,
    "-c",
    "import ctypes, socket, sys, threading, time; held = socket.create_server(('127.0.0.1', int(sys.argv[1])));"
    "threading.Thread(target=time.sleep, args=(600,)).start(); ctypes.CDLL(None).pthread_exit(None)",
)


@pytest.fixture
def home(home_settings: Settings) -> Path:
    home_settings.home.mkdir(parents=True)
    return home_settings.home


def _env(home: Path) -> dict[str, str]:
    return {**os.environ, STACK_VARIABLE: str(home)}


@contextmanager
def _started(home: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A child with the mark of `home`, in a session of its own; the kernel shows the mark a moment after the start."""
    with subprocess.Popen(SLEEPER, env=_env(home), start_new_session=True) as child:
        try:
            assert processes.wait_until(lambda: len(processes_of(home)) == 1, time.monotonic() + 20)
            yield child
        finally:
            child.kill()


def test_a_pid_that_somebody_else_has_now_is_not_ours(home: Path, home_settings: Settings) -> None:
    stranger = subprocess.Popen(SLEEPER)
    try:
        started = psutil.Process(stranger.pid).create_time() - 100
        record = ProcessRecord(name="kafka", pid=stranger.pid, started=started)
        record.save(home)
        choose_addresses(home_settings, frozenset(), frozenset())
        record_process(home, "kafka", record)

        assert not record.is_running
        assert recorded_service(home, "kafka") is None
        assert status(home_settings)[0].state == "stale"
        down(home_settings)
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_whole_family_is_stopped_even_when_its_leader_is_dead(home: Path) -> None:
    record = processes.start("kafka", LEADER, _env(home), home)
    log = processes.log_path(home, "kafka")
    assert processes.wait_until(lambda: "up" in log.read_text(), time.monotonic() + 10)
    psutil.Process(record.pid).kill()
    assert processes.wait_until(lambda: not record.is_running, time.monotonic() + 5)
    assert len(processes_of(home)) == 1

    assert processes.stop(processes.family_of([record]), term_grace=0.3) == []

    assert processes_of(home) == []


def test_the_port_of_a_killed_service_is_chosen_again_although_it_still_dies(home_settings: Settings) -> None:
    home, port = home_settings.home, choose_addresses(home_settings, frozenset(), frozenset()).kafka_port
    record = processes.start("kafka", (*HEADLESS, str(port)), _env(home), home)
    assert processes.wait_until(lambda: not record.is_running, time.monotonic() + 10)
    assert not is_free(port)

    control.bury(home_settings, "kafka")

    assert choose_addresses(home_settings, frozenset(), frozenset({"kafka"})).kafka_port == port
    assert is_free(port)


def test_a_child_that_nobody_recorded_is_found_by_its_mark(home: Path, home_settings: Settings) -> None:
    with _started(home) as orphan:
        down(home_settings)
        orphan.wait(timeout=20)
        assert processes_of(home) == []


def test_another_home_s_children_are_left_alone(home: Path, home_settings: Settings) -> None:
    with _started(home / "other") as neighbour:
        down(home_settings)
        assert neighbour.poll() is None


def test_a_followed_log_goes_on_over_a_restart(home: Path, home_settings: Settings) -> None:
    processes.rotated_log(home, "kafka").write_text("one\n")
    lines = control.log_lines(home_settings, "kafka", follow=True)
    assert next(lines) == "one"
    with processes.log_path(home, "kafka").open("a") as log:
        log.write("two\n")
    assert next(lines) == "two"
    processes.rotated_log(home, "kafka").write_text("three\n")
    assert next(lines) == "three"


def test_whoever_waits_for_another_up_is_told(home: Path) -> None:
    hold = (
        "import fcntl, sys, time; lock = open(sys.argv[1], 'w'); fcntl.flock(lock, fcntl.LOCK_EX);"
        "print('held', flush=True); time.sleep(1)"
    )
    command = [sys.executable, "-c", hold, str(home / "lock")]
    told: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with exclusive(home / "lock", told.append):
            assert told == ["waiting for another up or down on this machine"]


def test_a_log_is_rotated_once_at_each_start(home: Path) -> None:
    for text in ("first", "second", "third"):
        processes.rotated_log(home, "kafka").write_text(text)
    assert processes.log_path(home, "kafka").read_text() == "third"
    assert (home / "logs" / "kafka.log.1").read_text() == "second"
