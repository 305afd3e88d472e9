"""Crashes of a process: the exception that replaces SIGKILL, and a listener that raises it at a crash point."""


class Killed(BaseException):
    """The process is gone; nothing of the product may catch this."""


class CrashAt:
    """Kills at the nth crash point; None = never.

    Attributes:
        at: step and moment of the crash.
    """

    def __init__(self, nth: int | None) -> None:
        self.left, self.at = nth, ("", "")

    def __call__(self, step: str, moment: str) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left == 0:
                self.at = (step, moment)
                raise Killed
