"""Time and chance for tests: a clock that is set by hand, and ids that are counted."""

from dataclasses import dataclass


@dataclass
class ManualClock:
    """A clock that stands still until it is moved."""

    ms: int = 0

    def now_ms(self) -> int:
        """See `ports.Clock`."""
        return self.ms

    def advance(self, ms: int) -> None:
        """Moves the clock."""
        self.ms += ms


@dataclass
class SequentialIds:
    """Write ids in counting order, so that a failed test can be repeated."""

    last: int = 0

    def __call__(self) -> str:
        """See `ports.WriteIds`."""
        self.last += 1
        return f"{self.last:032x}"
