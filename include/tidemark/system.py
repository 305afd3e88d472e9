"""The clock and the random ids of this machine, handed down as arguments to all code that needs them."""

import time
import uuid


class SystemClock:
    """The wall clock."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch (UTC)."""
        return time.time_ns() // 1_000_000


def random_id() -> str:
    """A fresh random id, 32 hex digits."""
    return uuid.uuid4().hex
