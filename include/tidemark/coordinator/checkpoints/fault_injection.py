"""Fault injection: a step listener that kills or stops the process.

`TIDEMARK_CRASH_AT=step:before|after[:nth][:stop]` says where.

Honoured only where `TIDEMARK_TEST_FAULTS=1` is set as well, so that a stray variable cannot harm a real run
(reliability.md section 6). The process dies by SIGKILL, as a power cut would have it: no handler runs.
"""

import os
import signal
from dataclasses import dataclass

from tidemark.errors import UsageError


@dataclass
class CrashAt:
    """Kills the process the nth time that a step's moment is reached (port `StepListener`).

    Attributes:
        step: a step, or its first part: `runs` matches `runs.aircraft`.
        moment: `before` or `after`.
        nth: which time.
        stop: SIGSTOP instead of SIGKILL, so that a test can let another attempt pass and wake the sleeper.
    """

    step: str
    moment: str
    nth: int = 1
    stop: bool = False
    _seen: int = 0

    @classmethod
    def parse(cls, text: str) -> "CrashAt":
        """The crash point that the variable names.

        Raises:
            UsageError: not of the form above.
        """
        step, _, rest = text.partition(":")
        moment, *more = rest.split(":")
        numbers = [m for m in more if m.isdecimal()]
        if not step or moment not in ("before", "after") or set(more) - set(numbers) - {"stop"} or len(numbers) > 1:
            raise UsageError(f"not a crash point: {text!r}", next="write step:before|after[:nth][:stop].")
        return cls(step, moment, int(numbers[0]) if numbers else 1, "stop" in more)

    def __call__(self, step: str, moment: str) -> None:
        """Called around every step; does not return from the one it waits for, unless it was stopped and woken."""
        if moment != self.moment or (step != self.step and not step.startswith(self.step + ".")):
            return
        self._seen += 1
        if self._seen == self.nth:
            os.kill(os.getpid(), signal.SIGSTOP if self.stop else signal.SIGKILL)
