"""Shows the progress of a checkpoint on stderr: a live line on a terminal, plain lines elsewhere."""

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.status import Status


class ProgressListener:
    """Shows the running step while its `with` block is open (port `StepListener`).

    Example:
        with ProgressListener() as progress:
            checkpoints.run_once(context, "flights", request, progress)
    """

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._status: Status | None = None
        self._started: dict[str, float] = {}

    def __enter__(self) -> "ProgressListener":
        if self._console.is_terminal:
            self._status = self._console.status("starting")
            self._status.start()
        return self

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
        console = Console(stderr=True, highlight=False)
        self._status = console.status("starting") if console.is_terminal else None

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
