"""Child processes: starts them detached from the terminal, records them, finds them again, and stops their trees.

A pid alone does not identify a process, because it may be reused. A record therefore has the start time too. Every
child has its home in its environment, so that children are found even if `up` died before it recorded them.
"""

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from tidemark.embedded_services import SAME_START, is_same_process
from tidemark.settings import STACK_VARIABLE

TERM_GRACE = 15.0
KILL_GRACE = 10.0
_STARTED: list[subprocess.Popen[bytes]] = []
"""Children that outlive this process on purpose; referenced here, because a deleted Popen warns about them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRecord:
    """The identity of a started service, as written to a file in `<home>/pids/`."""

    name: str
    pid: int
    started: float

    @property
    def is_running(self) -> bool:
        """Return whether exactly this process is alive."""
        return is_same_process(self.pid, self.started)

    def save(self, home: Path) -> None:
        """Write the record atomically, so that a reader sees all of it or nothing."""
        write_whole(_record_path(home, self.name), json.dumps(asdict(self)))


def load_record(home: Path, name: str) -> ProcessRecord | None:
    """Return the record of a service, or None if it was never started or was stopped in order."""
    path = _record_path(home, name)
    return ProcessRecord(**json.loads(path.read_text())) if path.is_file() else None


def forget(home: Path, name: str) -> None:
    """Remove a service's record."""
    _record_path(home, name).unlink(missing_ok=True)


def start(name: str, argv: tuple[str, ...], env: Mapping[str, str], home: Path) -> ProcessRecord:
    """Start a service in a separate session and record it.

    Args:
        name: the name of the service and of its log file.
        argv: the command line. It must not contain secrets, because every user of the machine can read it.
        env: the complete environment, with the mark of this home.
        home: the stack's home.

    Returns:
        The record, already written.
    """
    log = rotated_log(home, name)
    with log.open("ab") as output:
        process = subprocess.Popen(
            argv,
            env=dict(env),
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    _STARTED.append(process)
    record = ProcessRecord(name=name, pid=process.pid, started=psutil.Process(process.pid).create_time())
    record.save(home)
    return record


def log_path(home: Path, name: str) -> Path:
    """Return the path of a service's log."""
    return home / "logs" / f"{name}.log"


def rotated_log(home: Path, name: str) -> Path:
    """Create an empty log, and keep the log of the previous start next to it as `.log.1`."""
    log = log_path(home, name)
    log.parent.mkdir(parents=True, exist_ok=True)
    if log.exists():
        log.replace(log.with_name(log.name + ".1"))
    return log


def family_of(records: Iterable[ProcessRecord]) -> list[psutil.Process]:
    """Return every process of the recorded services: their leaders, their sessions and their descendants.

    A leader may be dead while its session is alive. The kernel does not reuse the number of a living session, so all
    processes of a session belong to the stack if its number still is the record's.
    """
    records = list(records)
    sessions = {record.pid: record.started for record in records if _number_is_ours(record)}
    family = {process.pid: process for process in psutil.process_iter() if _session(process) in sessions}
    for process in list(family.values()):
        for child in _children(process):
            family[child.pid] = child
    return _without_self(family.values())


def marked_strays(home: Path) -> list[psutil.Process]:
    """Return processes with this home's mark in their environment, whatever their parent is now.

    Only child processes of the stack have the mark. A task of the embedded Airflow has it too and may call `down`, so
    the calling process and its ancestors are left out.
    """
    strays = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(STACK_VARIABLE) == str(home):
                strays.append(process)
        except (psutil.AccessDenied, psutil.NoSuchProcess, psutil.ZombieProcess):
            continue  # another user's process, or one that has ended meanwhile
    return _without_self(strays)


def stop(processes: list[psutil.Process], term_grace: float = TERM_GRACE) -> list[int]:
    """Ask every process to end, then kill those that do not.

    Args:
        processes: the processes to stop.
        term_grace: seconds between SIGTERM and SIGKILL.

    Returns:
        The pids that are still alive, normally none; the kernel may hold some.
    """
    descendants = {child.pid: child for process in processes for child in _children(process)}
    everybody = list({process.pid: process for process in [*processes, *_without_self(descendants.values())]}.values())
    for process in everybody:
        _signal(process, kill=False)
    if not wait_until(lambda: not any(map(_is_alive, everybody)), time.monotonic() + term_grace, pause=0.1):
        for process in filter(_is_alive, everybody):
            _signal(process, kill=True)
    wait_until(lambda: not any(map(_is_alive, everybody)), time.monotonic() + KILL_GRACE, pause=0.05)
    _STARTED[:] = [child for child in _STARTED if child.poll() is None]
    return [process.pid for process in everybody if _is_alive(process)]


def wait_until(condition: Callable[[], bool], deadline: float, pause: float = 0.2) -> bool:
    """Poll until the condition holds or `time.monotonic()` reaches the deadline; return whether it holds."""
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(pause)
    return True


def write_whole(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a small file atomically, so that no reader sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "w") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(descriptor)
    partial.replace(path)


def _record_path(home: Path, name: str) -> Path:
    return home / "pids" / f"{name}.json"


def _number_is_ours(record: ProcessRecord) -> bool:
    """Return whether the number is free or still belongs to the record's process, even as a zombie."""
    try:
        return abs(psutil.Process(record.pid).create_time() - record.started) < SAME_START
    except psutil.NoSuchProcess:
        return True


def _session(process: psutil.Process) -> int | None:
    try:
        return os.getsid(process.pid)
    except (ProcessLookupError, PermissionError):
        return None


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _is_alive(process: psutil.Process) -> bool:
    """Return whether any part of the process runs.

    A zombie waits for its parent, which may be a container's first process and never reap it. But a killed JVM is a
    zombie as soon as its first thread has ended, while the other threads still hold its ports.
    """
    try:
        with suppress(psutil.TimeoutExpired):
            process.wait(timeout=0)  # reaps a child of this process
        return process.is_running() and (process.status() != psutil.STATUS_ZOMBIE or process.num_threads() > 1)
    except psutil.NoSuchProcess:
        return False


def _without_self(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    me = psutil.Process()
    spared = {me.pid, *(parent.pid for parent in me.parents())}
    return [process for process in processes if process.pid not in spared]


def _signal(process: psutil.Process, *, kill: bool) -> None:
    with suppress(psutil.NoSuchProcess):  # it has ended by itself, as intended
        if kill:
            process.kill()
        else:
            process.terminate()
