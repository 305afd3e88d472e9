"""The addresses of the embedded stack's services, as `tidemark up` records them in `<home>/stack.json`."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

EmbeddedService = Literal["kafka", "spark", "airflow"]
SAME_START = 1.5
"""Seconds by which two readings of a process's start time may differ; process ids are not reused that quickly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedService:
    """The address of an embedded service, as `tidemark up` writes it to `<home>/stack.json`."""

    port: int
    pid: int
    started: float

    @property
    def host_and_port(self) -> str:
        """The address for clients; the embedded stack listens on the loopback interface only."""
        return f"127.0.0.1:{self.port}"


def recorded_service(home: Path, service: EmbeddedService) -> RecordedService | None:
    """Returns the recorded address of an embedded service if its process is still alive.

    Args:
        home: the folder with `stack.json`.
        service: the service; Airflow means its API server.

    Returns:
        None if it was never started, was stopped, or died.
    """
    path = home / "stack.json"
    entry = json.loads(path.read_text()).get(service, {}) if path.is_file() else {}
    if not (entry.get("pid") and entry.get("port")):
        return None
    recorded = RecordedService(port=entry["port"], pid=entry["pid"], started=entry["started"])
    return recorded if is_same_process(recorded.pid, recorded.started) else None


def is_same_process(pid: int, started: float) -> bool:
    """Whether `pid` is alive and started at that time, rather than being a later process with the same number."""
    import psutil

    try:
        process = psutil.Process(pid)
        return abs(process.create_time() - started) < SAME_START and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
