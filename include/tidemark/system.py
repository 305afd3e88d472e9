"""The clock, the random ids and the user of this machine; code that needs them takes them as arguments."""

import getpass
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


def user_name() -> str:
    """The user of this process; `unknown` where the system does not know either."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
