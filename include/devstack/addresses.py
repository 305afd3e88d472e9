"""Ports of the embedded stack: chosen once, recorded in `<home>/stack.json`, and kept as long as they are free."""

import fcntl
import json
import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from devstack.processes import ProcessRecord, write_whole
from tidemark.errors import UsageError
from tidemark.settings import Settings

LOOPBACK = "127.0.0.1"
DEFAULT_PORTS = {"kafka_port": 9092, "kafka_controller_port": 9093, "spark_port": 15002, "airflow_port": 8080}
CANDIDATES = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """The ports of one stack, all on the loopback interface."""

    kafka_port: int
    kafka_controller_port: int
    spark_port: int
    airflow_port: int

    def of(self, group: str) -> str:
        """The address that clients of a group (kafka, spark, airflow) connect to."""
        port = {"kafka": self.kafka_port, "spark": self.spark_port, "airflow": self.airflow_port}[group]
        prefix = {"kafka": "", "spark": "sc://", "airflow": "http://"}[group]
        return f"{prefix}{LOOPBACK}:{port}"


def choose_addresses(settings: Settings, running: frozenset[str], wanted: frozenset[str]) -> Addresses:
    """Choose every port: the configured one, else the recorded one, else the first free one from the default upwards.

    Args:
        settings: the configured ports; a port that is None or 0 is chosen freely.
        running: groups that run now, which keep their recorded ports.
        wanted: groups about to start, whose configured ports must be free.

    Returns:
        The ports, which are recorded too.

    Raises:
        UsageError: a configured port is taken.
    """
    recorded = _read(settings.home)
    ports: dict[str, int] = {}
    for field, default in DEFAULT_PORTS.items():
        group = field.split("_")[0]
        before = recorded.get(group, {}).get(field.removeprefix(f"{group}_"))
        chosen = getattr(settings, field)
        if group in running and before:
            ports[field] = before
        elif chosen:
            ports[field] = _insist(field, chosen) if group in wanted else chosen
        else:
            ports[field] = _first_free([before or default, *range(default, default + CANDIDATES)], set(ports.values()))
    addresses = Addresses(**ports)
    for field, port in ports.items():
        group = field.split("_")[0]
        recorded.setdefault(group, {})[field.removeprefix(f"{group}_")] = port
    _write(settings.home, recorded)
    return addresses


def recorded_addresses(home: Path) -> Addresses | None:
    """Return the ports of the last `up`, or None before the first one."""
    recorded = _read(home)
    if not all(recorded.get(field.split("_")[0]) for field in DEFAULT_PORTS):
        return None
    split = {field: field.split("_", 1) for field in DEFAULT_PORTS}
    return Addresses(**{field: recorded[group][rest] for field, (group, rest) in split.items()})


def record_process(home: Path, group: str, record: ProcessRecord | None) -> None:
    """Record the process that listens for a group; None if none does any more."""
    recorded = _read(home)
    entry = recorded.setdefault(group, {})
    entry.update({"pid": record.pid if record else None, "started": record.started if record else None})
    _write(home, recorded)


def is_free(port: int) -> bool:
    """Return whether a service could listen on the port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def accepts(port: int, host: str = LOOPBACK) -> bool:
    """Return whether a process accepts connections there within two seconds."""
    try:
        socket.create_connection((host, port), timeout=2.0).close()
    except OSError:
        return False
    return True


@contextmanager
def exclusive(path: Path, report: Callable[[str], None]) -> Iterator[None]:
    """Hold a lock file, so that only one `up` or `down` runs at a time. The lock is released if its holder dies.

    Args:
        path: the lock file.
        report: called with a message before a wait, which may be as long as the `up` of another checkout.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report("waiting for another up or down on this machine")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def port_lock() -> Path:
    """Return the lock for choosing and binding ports, which all checkouts of this user share."""
    return Path(tempfile.gettempdir()) / f"tidemark-{os.getuid()}.ports.lock"


def _insist(field: str, port: int) -> int:
    if not is_free(port):
        raise UsageError(
            f"port {port} of TIDEMARK_{field.upper()} is taken by another process",
            safe="nothing was started.",
            next=f"free it, or set TIDEMARK_{field.upper()} to another port (0 lets Tidemark choose).",
        )
    return port


def _first_free(candidates: list[int], taken: set[int]) -> int:
    for port in candidates:
        if port not in taken and is_free(port):
            return port
    raise UsageError(
        f"no free port between {candidates[1]} and {candidates[-1]}",
        safe="nothing was started.",
        next="stop the processes that hold them, or set the TIDEMARK_*_PORT variables.",
    )


def _read(home: Path) -> dict[str, dict[str, Any]]:
    path = home / "stack.json"
    recorded: dict[str, dict[str, Any]] = json.loads(path.read_text()) if path.is_file() else {}
    return recorded


def _write(home: Path, recorded: dict[str, dict[str, Any]]) -> None:
    write_whole(home / "stack.json", json.dumps(recorded, indent=2, sort_keys=True) + "\n")
