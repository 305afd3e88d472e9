"""Runs the command `tidemark` in processes of its own that need not import it first.

One process imports what every command needs and forks for each of them: the child dies, stops and exits as any other
process does, 1.5 s earlier. It must not import what starts threads that a fork would lose (deltalake).
"""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

PATIENCE = 180.0
"""Seconds that one command may take on a machine under load."""


class Child:
    """A command that was started.

    Attributes:
        pid: of its process.
    """

    def __init__(self, zygote: "Zygote", pid: int, out: Path) -> None:
        self.pid, self._zygote, self._out = pid, zygote, out

    def poll(self) -> int | None:
        """Its return code, negative for a signal; None while it runs."""
        return self._zygote.ended(self.pid, 0)

    def wait(self) -> subprocess.CompletedProcess[str]:
        """What it came to.

        Raises:
            TimeoutError: it still runs.
        """
        code = self._zygote.ended(self.pid, PATIENCE)
        if code is None:
            raise TimeoutError(f"{self.pid} still runs: {self._read('err')}")
        return subprocess.CompletedProcess([], code, self._read("out"), self._read("err"))

    def kill(self) -> None:
        """Ends it, whatever it does."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
            self._zygote.ended(self.pid, PATIENCE)

    def _read(self, name: str) -> str:
        return (self._out / name).read_text()


class Zygote:
    """The process that forks. One thread at a time may ask it."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._count = folder, 0
        self._codes: dict[int, int] = {}
        env = {k: v for k, v in os.environ.items() if not k.startswith("TIDEMARK_")} | {"OPENBLAS_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.zygote"], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def __enter__(self) -> "Zygote":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._process.kill()
        self._process.communicate()

    def start(self, arguments: Sequence[str], env: Mapping[str, str]) -> Child:
        """Starts `tidemark` with these arguments and exactly this environment."""
        self._count += 1
        out = self._folder / str(self._count)
        out.mkdir()
        asked = {"arguments": list(arguments), "env": dict(env), "out": str(out)}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asked).encode() + b"\n")
        self._process.stdin.flush()
        while "started" not in (told := self._told(PATIENCE)):
            pass
        return Child(self, told["started"], out)

    def ended(self, pid: int, patience: float) -> int | None:
        """The return code of a child; None while it runs."""
        until = time.monotonic() + patience
        while pid not in self._codes and self._told(max(until - time.monotonic(), 0)):
            pass
        return self._codes.get(pid)

    def _told(self, patience: float) -> dict[str, int]:
        """The next thing that it says; nothing where it says nothing in time."""
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], patience)[0]:
            return {}
        line = os.read(self._process.stdout.fileno(), 64)  # all lines have this length, and a pipe never parts them
        told: dict[str, int] = json.loads(line)
        if "ended" in told:
            self._codes[told["ended"]] = told["code"]
        return told


def _tell(**told: int) -> None:
    os.write(1, json.dumps(told).ljust(63).encode() + b"\n")


def _bury() -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        _tell(ended=pid, code=os.waitstatus_to_exitcode(status))


def _become(arguments: Sequence[str], env: Mapping[str, str], out: Path) -> None:
    """Turns a fork into a process like any other; returns when the command has ended in order."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(env)
    for number, name in ((1, "out"), (2, "err")):
        file = os.open(out / name, os.O_WRONLY | os.O_CREAT)
        os.dup2(file, number)
        os.close(file)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.argv = ["tidemark", *arguments]


def main() -> None:
    """Forks for every line of stdin, and tells of every child that ends."""
    import tidemark.cli.main
    import tidemark.engine.compute
    import tidemark.engine.job
    import tidemark.engine.process  # noqa: F401

    assert "deltalake" not in sys.modules
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        ready, _, _ = select.select([0, woken], [], [])
        if woken in ready:
            os.read(woken, 64)
            _bury()
        if 0 in ready:
            line = sys.stdin.buffer.raw.readline() if hasattr(sys.stdin.buffer, "raw") else b""
            if not line:
                return
            asked = json.loads(line)
            pid = os.fork()
            if not pid:
                _become(asked["arguments"], asked["env"], Path(asked["out"]))
                tidemark.cli.main.entry()
                return
            _tell(started=pid)


if __name__ == "__main__":
    main()
