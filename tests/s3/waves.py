"""Counts round trips in a row, whatever one of them takes."""

import threading
from dataclasses import dataclass, field

from tests.support.s3_proxy import S3Request

QUIET = 0.25
"""Seconds without a further request, after which those that wait are let go."""


@dataclass
class Waves:
    """A rule of the proxy that lets requests go together, once no other one has arrived for a while."""

    waves: list[list[str]] = field(default_factory=list)
    _open: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _released: threading.Event = field(default_factory=threading.Event)
    _timer: threading.Timer = field(default_factory=lambda: threading.Timer(0, int))

    def __call__(self, request: S3Request) -> None:
        with self._lock:
            self._open.append(f"{request.method} {request.path.replace('%2F', '/')}")
            self._timer.cancel()
            self._timer = threading.Timer(QUIET, self._release)
            self._timer.start()
            released = self._released
        assert released.wait(30)

    def _release(self) -> None:
        with self._lock:
            self.waves.append(self._open)
            self._open, released, self._released = [], self._released, threading.Event()
        released.set()

    def of_the_product(self) -> list[list[str]]:
        """Without those in which the twin of the engine reads the stored state, which Spark does not."""
        return [wave for wave in self.waves if any("/state/" not in r or r.startswith("PUT") for r in wave)]
