"""The clock and the random ids of this machine; code that needs them takes them as arguments."""

import time
import uuid


class SystemClock:
    """The wall clock."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch (UTC)."""
        return time.time_ns() // 1_000_000


def random_id() -> str:
    """Returns a new random id of 32 hex digits."""
    return uuid.uuid4().hex
