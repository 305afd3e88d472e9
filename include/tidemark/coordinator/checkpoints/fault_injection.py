"""Fault injection: a step listener that kills or stops the process.

`TIDEMARK_CRASH_AT=step:before|after[:nth][:stop]` sets the point.

The variable is ignored unless `TIDEMARK_TEST_FAULTS=1` is set as well, so that a leftover variable cannot harm a real
run. The process dies by SIGKILL, as in a power cut: no handler runs.
"""

import os
import signal
from dataclasses import dataclass

from tidemark.errors import UsageError


@dataclass
class CrashAt:
    """Kills the process when a step's moment is reached for the nth time (port `StepListener`).

    Attributes:
        step: a step, or its first part: `runs` matches `runs.aircraft`.
        moment: `before` or `after`.
        nth: which time.
        stop: send SIGSTOP instead of SIGKILL, so that a test can run another attempt and then wake this process.
    """

    step: str
    moment: str
    nth: int = 1
    stop: bool = False
    _seen: int = 0

    @classmethod
    def parse(cls, text: str) -> "CrashAt":
        """Parses the crash point in the variable.

        Raises:
            UsageError: the text does not have the form above.
        """
        step, _, rest = text.partition(":")
        moment, *more = rest.split(":")
        numbers = [m for m in more if m.isdecimal()]
        if not step or moment not in ("before", "after") or set(more) - set(numbers) - {"stop"} or len(numbers) > 1:
            raise UsageError(f"not a crash point: {text!r}", next="write step:before|after[:nth][:stop].")
        return cls(step, moment, int(numbers[0]) if numbers else 1, "stop" in more)

    def __call__(self, step: str, moment: str) -> None:
        """Called around every step. At its own point it returns only if the process was stopped and is woken."""
        if moment != self.moment or (step != self.step and not step.startswith(self.step + ".")):
            return
        self._seen += 1
        if self._seen == self.nth:
            os.kill(os.getpid(), signal.SIGSTOP if self.stop else signal.SIGKILL)
