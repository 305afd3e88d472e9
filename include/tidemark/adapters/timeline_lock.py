"""The timeline's lock among processes of one host, by flock: freed by the kernel when its holder dies, however it dies.

It spares wasted work and is never needed for correctness.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tidemark.errors import BusyError, StoreError
from tidemark.model.names import checked_name


@dataclass(frozen=True)
class FileTimelineLock:
    """One lock file per timeline.

    Attributes:
        folder: `<warehouse>/<pipeline>/locks`.
    """

    folder: Path

    @contextmanager
    def hold(self, timeline: str) -> Iterator[None]:
        """See `ports.TimelineLock`; it never waits.

        Raises:
            BusyError: another process holds it; the message names its process id where that is known.
            StoreError: the lock file cannot be opened.
        """
        handle = self._opened(checked_name("timeline", timeline))
        try:
            self._lock(handle, timeline)
            yield
        finally:
            os.close(handle)

    def _opened(self, timeline: str) -> int:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            return os.open(self.folder / f"{timeline}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StoreError(
                f"could not open the lock of timeline {timeline}: {error.strerror}",
                next="check that the warehouse is writable, then run the same command again.",
            ) from error

    def _lock(self, handle: int, timeline: str) -> None:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            found = os.pread(handle, 32, 0).decode(errors="replace").strip()
            holder = f"process {found}" if found.isdecimal() else "another process"
            raise BusyError(
                f"timeline {timeline} is busy: {holder} holds it",
                next="wait until it has finished, then run the same command again.",
            ) from error
        # For people only: the lock is the kernel's, so a number that a dead process left here misleads nobody's code.
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
