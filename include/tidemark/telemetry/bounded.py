"""Calls that must never fail or delay a run: metrics and lineage. They have a time limit, and stop after a failure."""

from collections.abc import Callable
from threading import Event, Thread

from tidemark.telemetry.lazy_logger import log


class Bounded:
    """Calls a function in a separate thread and waits for it for a limited time.

    After the first failure this process makes no further calls, so a receiver that is down costs one wait and one
    warning. A call that exceeds the limit is abandoned; its thread is a daemon, so it does not delay the exit.

    Args:
        what: names the receiver in the warning: `metrics` or `lineage`.
        seconds: the time limit of a call, in seconds.
    """

    def __init__(self, what: str, seconds: float) -> None:
        self.what = what
        self.seconds = seconds
        self.given_up = False

    def call(self, work: Callable[[], None]) -> bool:
        """Returns whether the call succeeded in time; never raises an Exception."""
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
        log.warning("observer_given_up", what=self.what, why=why, next="the run continues without it.")
        return False
