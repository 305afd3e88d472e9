"""Child processes: started apart from the terminal, recorded, recognised again, and stopped with all their offspring.

A pid alone proves nothing: it may belong to somebody else by now. A record holds the start time too, and every child
carries its home in its environment, so that children of an `up` that died before it recorded them are found.
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

from tidemark.settings import SAME_START, STACK_VARIABLE, is_same_process

TERM_GRACE = 15.0
KILL_GRACE = 10.0
_STARTED: list[subprocess.Popen[bytes]] = []
"""Children that outlive this process on purpose; held, because a dropped Popen complains about a running child."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRecord:
    """One started service: who it is, as written below `<home>/pids/`."""

    name: str
    pid: int
    started: float

    @property
    def is_running(self) -> bool:
        """Whether this very process is alive."""
        return is_same_process(self.pid, self.started)

    def save(self, home: Path) -> None:
        """Write the record so that a reader sees all of it or none."""
        write_whole(_record_path(home, self.name), json.dumps(asdict(self)))


def load_record(home: Path, name: str) -> ProcessRecord | None:
    """The record of a service, or None when it was never started or was stopped in order."""
    path = _record_path(home, name)
    return ProcessRecord(**json.loads(path.read_text())) if path.is_file() else None


def forget(home: Path, name: str) -> None:
    """Remove a service's record."""
    _record_path(home, name).unlink(missing_ok=True)


def start(name: str, argv: tuple[str, ...], env: Mapping[str, str], home: Path) -> ProcessRecord:
    """Start a service in a session of its own and record it.

    Args:
        name: the service's name, also of its log file.
        argv: the command line; never holds a secret, because every user of the machine can read it.
        env: its whole environment, with the mark of this home in it.
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
    """Where a service writes what it says."""
    return home / "logs" / f"{name}.log"


def rotated_log(home: Path, name: str) -> Path:
    """An empty log; the one of the previous start is kept beside it as `.log.1`."""
    log = log_path(home, name)
    log.parent.mkdir(parents=True, exist_ok=True)
    if log.exists():
        log.replace(log.with_name(log.name + ".1"))
    return log


def family_of(records: Iterable[ProcessRecord]) -> list[psutil.Process]:
    """Every process of the recorded services: their leaders, their sessions, and their descendants.

    A leader may be dead while its session lives on. The kernel gives no new process the number of a living session,
    so whoever is in it and is not younger than the record's is ours.
    """
    records = list(records)
    sessions = {record.pid: record.started for record in records if _number_is_ours(record)}
    family = {process.pid: process for process in psutil.process_iter() if _session(process) in sessions}
    for process in list(family.values()):
        for child in _children(process):
            family[child.pid] = child
    return _without_self(family.values())


def marked_strays(home: Path) -> list[psutil.Process]:
    """Processes that carry this home's mark in their environment, whoever their parent is now.

    Nobody but the children of the stack has the mark. A task of the embedded Airflow has it as well, and may itself ask
    for `down`: it and its ancestors are not among the strays.
    """
    strays = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(STACK_VARIABLE) == str(home):
                strays.append(process)
        except (psutil.AccessDenied, psutil.NoSuchProcess, psutil.ZombieProcess):
            continue  # another user's process, or one that ended meanwhile, is not ours to stop
    return _without_self(strays)


def stop(processes: list[psutil.Process], term_grace: float = TERM_GRACE) -> list[int]:
    """Ask every process to end, then make those end that do not.

    Args:
        processes: whom to stop.
        term_grace: seconds between SIGTERM and SIGKILL.

    Returns:
        The pids that are still alive, which is none unless the kernel holds them.
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
    """Poll until the condition holds or `time.monotonic()` has reached the deadline; tells which of the two."""
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(pause)
    return True


def write_whole(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a small file so that no reader ever sees half of it."""
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
    """Nobody has the number, or its owner still has, be it as a zombie."""
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
    """Whether any of it runs.

    A zombie waits for its parent, who may be a container's first process and never look. But a killed JVM is a zombie
    as soon as its first thread is gone, while the others still hold its ports.
    """
    try:
        with suppress(psutil.TimeoutExpired):
            process.wait(timeout=0)  # reaps our own children
        return process.is_running() and (process.status() != psutil.STATUS_ZOMBIE or process.num_threads() > 1)
    except psutil.NoSuchProcess:
        return False


def _without_self(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    me = psutil.Process()
    spared = {me.pid, *(parent.pid for parent in me.parents())}
    return [process for process in processes if process.pid not in spared]


def _signal(process: psutil.Process, *, kill: bool) -> None:
    with suppress(psutil.NoSuchProcess):  # it has ended by itself, which is what is wanted
        if kill:
            process.kill()
        else:
            process.terminate()
