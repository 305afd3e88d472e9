"""What must never fail or hold up a run: metrics and lineage. Bounded in time, and given up for good when it fails."""

from collections.abc import Callable
from threading import Event, Thread

import structlog

_log = structlog.get_logger("tidemark")


class Bounded:
    """Calls something in a thread of its own and waits for it no longer than it is allowed to take.

    After the first failure nothing more is tried by this process: a receiver that is down costs one wait and one
    warning. A call that takes too long is left behind; it holds up no exit, because its thread is a daemon.

    Args:
        what: what is called, for the warning: `metrics`, `lineage`.
        seconds: how long a call may take.
    """

    def __init__(self, what: str, seconds: float) -> None:
        self.what = what
        self.seconds = seconds
        self.given_up = False

    def call(self, work: Callable[[], None]) -> bool:
        """Whether the work was done in time; never raises an Exception."""
        if self.given_up:
            return False
        failed: list[Exception] = []
        over = Event()

        def attempt() -> None:
            try:
                work()
            except Exception as error:  # noqa: BLE001  (whatever a receiver does wrong is not the run's business)
                failed.append(error)
            over.set()

        Thread(target=attempt, name=f"tidemark-{self.what}", daemon=True).start()
        if not over.wait(self.seconds):
            return self._give_up(f"no answer within {self.seconds:g} s")
        if failed:
            return self._give_up(f"{type(failed[0]).__name__}: {failed[0]}")
        return True

    def _give_up(self, why: str) -> bool:
        self.given_up = True
        _log.warning("observer_given_up", what=self.what, why=why, next="the run goes on without it.")
        return False
