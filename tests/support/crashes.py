"""Simulated crashes: an exception in place of SIGKILL, and a listener that raises it at a crash point."""


class Killed(BaseException):
    """The process was killed. Product code must not catch this."""


class CrashAt:
    """Raises `Killed` at the nth crash point; never if `nth` is None.

    Attributes:
        at: step and moment of the crash; empty strings before it.
    """

    def __init__(self, nth: int | None) -> None:
        self.left, self.at = nth, ("", "")

    def __call__(self, step: str, moment: str) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left == 0:
                self.at = (step, moment)
                raise Killed
