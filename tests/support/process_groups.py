"""A process group: a program and all that it starts, ended together by the group's own id."""

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

PATIENCE = 30.0
"""Seconds that a program has to end by itself."""


@contextmanager
def process_group(
    command: Sequence[str], log: Path, *, env: Mapping[str, str], cwd: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a program in a group of its own for the duration of the block; SIGTERM ends it, and SIGKILL later.

    Args:
        command: the program and its arguments.
        log: file that gets its output.
        env: its whole environment.
        cwd: its working directory.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=env, cwd=cwd, stdout=output, stderr=output, start_new_session=True)
        try:
            yield process
        finally:
            for sent in (signal.SIGTERM, signal.SIGKILL):
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, sent)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(PATIENCE)
