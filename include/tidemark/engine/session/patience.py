"""How long a Connect client waits for a server that does not answer: one limit for all calls of a session.

Spark's own policies count per call. If the server is gone, each call that cleans up waits again, and so do the threads
that release results, for which the process waits when it exits.
"""

import time

from pyspark.sql.connect.client.retries import DefaultPolicy, RetryPolicy, RetryPolicyState, extract_retry_info

PATIENCE = 9.0
"""Seconds from the first failure of a call until its server counts as gone: longer than a short network outage, and
shorter than a person waits before starting another attempt, which repairs a checkpoint."""
_FIRST_PAUSE_MS, _LONGEST_PAUSE_MS = 100, 1_000
RECONNECTING = [("grpc.initial_reconnect_backoff_ms", _FIRST_PAUSE_MS), ("grpc.max_reconnect_backoff_ms", 1_000)]
"""Options of a channel: gRPC's own pauses grow to two minutes, during which each call fails without trying."""


class Patience(DefaultPolicy):
    """Retries while the server does not answer, up to the limit; then no call of the session waits any more.

    A server that itself says when to retry is alive: that is for another policy.
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
        """Returns milliseconds to wait before the next try; None = the server is gone."""
        now = time.monotonic()
        if self._until is None:
            self._until = now + self._patience.seconds
        wait = super().next_attempt(exception)
        if wait is None or now + wait / 1000 > self._until:
            self._patience.is_spent = True
        return None if self._patience.is_spent else wait


def policies() -> list[RetryPolicy]:
    """Returns the retry policies of one session."""
    return [
        Patience(),
        DefaultPolicy(max_retries=10, initial_backoff=_FIRST_PAUSE_MS, backoff_multiplier=2.0, max_backoff=5_000),
    ]
