"""Shows the progress of a checkpoint on stderr: a live line on a terminal, plain lines elsewhere.

Rich is imported only where it may find a terminal, because it takes time to import.
"""

import os
import sys
import time
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

_FORCED = ("FORCE_COLOR", "TTY_COMPATIBLE")
"""Variables by which Rich takes something else for a terminal."""


def _console() -> "Console":
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def _status() -> "Status | None":
    """Returns the live line; None if stderr is not a terminal."""
    if not (sys.stderr.isatty() or any(os.environ.get(name) for name in _FORCED)):
        return None
    console = _console()
    return console.status("starting") if console.is_terminal else None


class ProgressListener:
    """Shows the running step while its `with` block is open (port `StepListener`).

    Example:
        with ProgressListener() as progress:
            checkpoints.run_once(context, "flights", request, progress)
    """

    def __init__(self) -> None:
        self._status: Status | None = None
        self._started: dict[str, float] = {}

    def __enter__(self) -> "ProgressListener":
        self._status = _status()
        if self._status is not None:
            self._status.start()
        return self

    @cached_property
    def _console(self) -> "Console":
        return _console() if self._status is None else self._status.console

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._status is not None:
            self._status.stop()

    def __call__(self, step: str, moment: str) -> None:
        """Shows the start or end of a step; `moment` is `before` or `after`. Points inside a commit are not steps."""
        if step.startswith("commit."):
            return
        if moment == "before":
            self._started[step] = time.monotonic()
            if self._status is not None:
                self._status.update(step)
            return
        took = time.monotonic() - self._started.pop(step, time.monotonic())
        if self._status is None:
            sys.stderr.write(f"{step} {took:.2f} s\n")

    def tell(self, progress: object | None) -> None:
        """Prints a line above the running step; nothing for None."""
        if progress is not None:
            self._console.print(str(progress), soft_wrap=True)


class Counted:
    """Shows which of several pieces of work is in progress, while its `with` block is open; on a terminal only."""

    def __init__(self) -> None:
        self._status = _status()

    def __enter__(self) -> "Counted":
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._status is not None:
            self._status.stop()

    def __call__(self, what: str, number: int, count: int) -> None:
        """Shows that piece `number` of `count` has started."""
        if self._status is not None:
            self._status.update(f"{number} of {count}: {what}")
