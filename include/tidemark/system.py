"""The clock, the random ids and the user of this machine, handed down as arguments to all code that needs them."""

import getpass
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


def user_name() -> str:
    """The user of this process; `unknown` where the system does not know either."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
