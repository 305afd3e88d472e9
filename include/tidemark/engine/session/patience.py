"""How long a Connect client waits for a server that does not answer: one patience for all calls of a session.

Spark's own policies count per call. A server that is gone is then waited for once more by each call that cleans up, and
by the threads that release results, which the process waits for at its end.
"""

import time

from pyspark.sql.connect.client.retries import DefaultPolicy, RetryPolicy, RetryPolicyState, extract_retry_info

PATIENCE = 9.0
"""Seconds from a call's first failure until its server counts as gone: longer than a blip of the network, and less
than anybody waits who could start another attempt, which is what repairs a checkpoint (I9)."""
_FIRST_PAUSE_MS, _LONGEST_PAUSE_MS = 100, 1_000
RECONNECTING = [("grpc.initial_reconnect_backoff_ms", _FIRST_PAUSE_MS), ("grpc.max_reconnect_backoff_ms", 1_000)]
"""Options of a channel: gRPC's own pauses grow to two minutes, in which each call fails without asking the network."""


class Patience(DefaultPolicy):
    """Tries again while the server does not answer, for so long; afterwards no call of the session waits any more.

    A server that says itself when to try again is alive: that is for another policy.
    """

    def __init__(self, seconds: float = PATIENCE) -> None:
        super().__init__(
            max_retries=None,
            initial_backoff=_FIRST_PAUSE_MS,
            backoff_multiplier=2.0,
            max_backoff=_LONGEST_PAUSE_MS,
        )
        self.seconds = seconds
        self.is_spent = False

    def can_retry(self, e: BaseException) -> bool:
        """See `RetryPolicy`."""
        return super().can_retry(e) and extract_retry_info(e) is None

    def to_state(self) -> RetryPolicyState:
        """See `RetryPolicy`: what one call has left."""
        return _Call(self)


class _Call(RetryPolicyState):
    def __init__(self, patience: Patience) -> None:
        super().__init__(patience)
        self._patience = patience
        self._until: float | None = None

    def next_attempt(self, exception: BaseException | None = None) -> int | None:
        """Milliseconds to wait before the next try; None = the server is gone."""
        now = time.monotonic()
        if self._until is None:
            self._until = now + self._patience.seconds
        wait = super().next_attempt(exception)
        if wait is None or now + wait / 1000 > self._until:
            self._patience.is_spent = True
        return None if self._patience.is_spent else wait


def policies() -> list[RetryPolicy]:
    """Those of one session."""
    return [
        Patience(),
        DefaultPolicy(max_retries=10, initial_backoff=_FIRST_PAUSE_MS, backoff_multiplier=2.0, max_backoff=5_000),
    ]
