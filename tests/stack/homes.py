"""Stacks in temporary homes, for every test that needs one.

`temporary_stack(home, "kafka", "spark")` is a context manager: services of this checkout's environment and jars, with a
home, ports and data of their own, gone afterwards together with everything that they have started.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from devstack.control import down, up
from tidemark.settings import STACK_VARIABLE, Settings, load_settings

ROOT = Path(__file__).resolve().parents[2]


def settings_for(home: Path, **overrides: Any) -> Settings:
    """Settings of this checkout with another home; ports are chosen freely."""
    return load_settings(root=ROOT, home=home, **overrides)


@contextmanager
def temporary_stack(home: Path, *groups: str, **overrides: Any) -> Iterator[Settings]:
    """A running stack of these groups; `settings.kafka_address`, `.spark_address`, `.airflow_address` say where."""
    settings = settings_for(home, **overrides)
    try:
        up(settings, groups)
        yield settings
    finally:
        down(settings)


def listening(port: int) -> bool:
    """Whether anybody accepts connections on the port."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def processes_of(home: Path) -> list[str]:
    """The command lines of all living processes that carry this home's mark."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and process.environ().get(STACK_VARIABLE) == os.fspath(home):
                found.append(" ".join(process.cmdline()))
        except psutil.Error:
            continue  # it has ended, or is another user's
    return found
