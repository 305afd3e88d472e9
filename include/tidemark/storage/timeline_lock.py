"""The timeline's lock among processes of one host, by flock: the kernel releases it when its holder dies.

It avoids wasted work and is never needed for correctness: the outcome key fences attempts. A holder that hangs (it was
stopped, or its disk does not answer) blocks no other process past the time that it wrote into the lock file: the next
one uses another file in its place.
"""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from tidemark.errors import BusyError, StoreError
from tidemark.model.core.names import checked_name

_TRIES = 10
"""How often a lock file may disappear while locking before the timeline counts as busy."""


@dataclass(frozen=True)
class HeldTimeline:
    """A lock that is held.

    Attributes:
        handle: of the lock file.
        now_ms: the clock.
    """

    handle: int
    now_ms: Callable[[], int]

    def renew(self, timeout: timedelta) -> None:
        """Writes until when others wait, for an attempt that begins with this timeout.

        Raises:
            StoreError: the lock file cannot be written.
        """
        until = self.now_ms() + timeout // timedelta(milliseconds=1)
        # Only a hint for others: the lock itself is the kernel's, so leftovers of a dead process are harmless.
        try:
            os.pwrite(self.handle, f"{os.getpid():<10} {until:<20}\n".encode(), 0)
        except OSError as error:
            raise _unwritten("write the lock of a timeline", error) from error


@dataclass(frozen=True)
class FileTimelineLock:
    """One lock file per timeline.

    Attributes:
        folder: `<warehouse>/<pipeline>/locks`.
        now_ms: the clock.
    """

    folder: Path
    now_ms: Callable[[], int]

    @contextmanager
    def hold(self, timeline: str, timeout: timedelta) -> Iterator[HeldTimeline]:
        """See `ports.TimelineLock`; it never waits.

        Raises:
            BusyError: another process holds it; the message contains its process id if known.
            StoreError: the lock file cannot be opened or written.
        """
        held = HeldTimeline(self._acquired(checked_name("timeline", timeline), timeout), self.now_ms)
        try:
            yield held
        finally:
            os.ftruncate(held.handle, 0)
            os.close(held.handle)

    def _acquired(self, timeline: str, timeout: timedelta) -> int:
        path = self.folder / f"{timeline}.lock"
        for _ in range(_TRIES):
            handle = self._opened(path, timeline)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder, until = _read_holder(handle)
                hangs = until is not None and until < self.now_ms()
                if hangs and _is_at(handle, path):
                    path.unlink(missing_ok=True)
                os.close(handle)
                if not hangs:
                    raise _busy(timeline, holder) from None
                continue
            if _is_at(handle, path):
                try:
                    HeldTimeline(handle, self.now_ms).renew(timeout)
                except StoreError:
                    os.close(handle)
                    raise
                return handle
            os.close(handle)  # the file was removed between open and lock
        raise _busy(timeline, None)

    def _opened(self, path: Path, timeline: str) -> int:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise _unwritten(f"open the lock of timeline {timeline}", error) from error


def _unwritten(what: str, error: OSError) -> StoreError:
    return StoreError(
        f"could not {what}: {error.strerror}",
        next="check that the warehouse is writable and has space left, then run the same command again.",
    )


def _read_holder(handle: int) -> tuple[str | None, int | None]:
    """Returns the process that holds a lock, and until when others wait; release 0.1 wrote the process alone."""
    found = os.pread(handle, 64, 0).decode(errors="replace").split()
    numbers = [text for text in found if text.isdecimal()]
    return (numbers[0] if numbers else None), (int(numbers[1]) if len(numbers) > 1 else None)


def _is_at(handle: int, path: Path) -> bool:
    """Whether an open file is the one at a path: another process may have replaced it."""
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    mine = os.fstat(handle)
    return (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)


def _busy(timeline: str, holder: str | None) -> BusyError:
    return BusyError(
        f"timeline {timeline} is busy: {f'process {holder}' if holder else 'another process'} holds it",
        next="wait until it has finished, then run the same command again.",
    )
