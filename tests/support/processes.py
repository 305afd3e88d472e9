"""Runs the command `tidemark` in forked processes, which do not have to import it first.

One process imports the modules that every command needs, and forks for each command. The child dies, stops and exits
like any other process, but starts 3 s sooner, or 10 s sooner if it evaluates a gate. The forking process must not
import modules that start threads, such as deltalake, because a fork loses threads.

Tests send their requests through a `Zygote`. Shells run a program that replaces the command (`Zygote.program`) and
passes its folder, its environment and its standard streams to the fork.
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

PATIENCE = 180.0
"""Seconds that a command may take on a loaded machine."""


PROGRAM = """\
#!{python} -IS
import json, os, signal, socket, sys
with socket.socket(socket.AF_UNIX) as door:
    door.connect({door!r})
    asked = {{"arguments": sys.argv[1:], "env": dict(os.environ), "folder": os.getcwd()}}
    socket.send_fds(door, [b"!"], [0, 1, 2])
    door.sendall(json.dumps(asked).encode())
    door.shutdown(socket.SHUT_WR)
    code = int(door.recv(16) or b"1")
if code < 0:
    signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
    os.kill(os.getpid(), -code)
sys.exit(code)
"""


class Child:
    """A started command.

    Attributes:
        pid: id of its process.
    """

    def __init__(self, zygote: "Zygote", pid: int, out: Path) -> None:
        self.pid, self._zygote, self._out = pid, zygote, out

    def poll(self) -> int | None:
        """The return code, negative after a signal; None while the command runs."""
        return self._zygote.ended(self.pid, 0)

    def wait(self) -> subprocess.CompletedProcess[str]:
        """Waits until the command has ended, and returns its code and output.

        Raises:
            TimeoutError: the command still runs after `PATIENCE`.
        """
        code = self._zygote.ended(self.pid, PATIENCE)
        if code is None:
            raise TimeoutError(f"{self.pid} still runs: {self._read('err')}")
        return subprocess.CompletedProcess([], code, self._read("out"), self._read("err"))

    def kill(self) -> None:
        """Sends SIGKILL to the command, and waits until it has ended."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
            self._zygote.ended(self.pid, PATIENCE)

    def _read(self, name: str) -> str:
        return (self._out / name).read_text()


class Zygote:
    """The process that forks. Only one thread at a time may use it."""

    def __init__(self, folder: Path, *, gates: bool = False) -> None:
        """Starts the process. With `gates`, it also imports the packages that quality gates need."""
        self._folder, self._count = folder, 0
        self._codes: dict[int, int] = {}
        self._door = folder / "door"
        env = {k: v for k, v in os.environ.items() if not k.startswith("TIDEMARK_")} | {"OPENBLAS_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "tests.support.processes", str(self._door), *(["gates"] if gates else [])]
        self._process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self) -> "Zygote":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._process.kill()
        self._process.communicate()

    def program(self, path: Path) -> None:
        """Writes a program that acts as `tidemark`, with the folder, environment and streams of its caller."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(PROGRAM.format(python=sys.executable, door=str(self._door)))
        path.chmod(0o755)
        deadline = time.monotonic() + PATIENCE
        while not self._door.exists():
            assert self._process.poll() is None and time.monotonic() < deadline, "the zygote did not open its socket"
            time.sleep(0.05)

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
        """The next message of the process; an empty one if none arrives in time."""
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], patience)[0]:
            return {}
        line = os.read(self._process.stdout.fileno(), 64)  # every line has this length, and a pipe keeps it whole
        told: dict[str, int] = json.loads(line)
        if "ended" in told:
            self._codes[told["ended"]] = told["code"]
        elif "started" in told:
            self._codes.pop(told["started"], None)  # a pid may be that of an earlier child
        return told


def _tell(**told: int) -> None:
    os.write(1, json.dumps(told).ljust(63).encode() + b"\n")


def _bury(guests: dict[int, socket.socket]) -> None:
    """Reports each ended child: to a shell's program over its connection, to the tests on stdout."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        code, guest = os.waitstatus_to_exitcode(status), guests.pop(pid, None)
        if guest is None:
            _tell(ended=pid, code=code)
            continue
        with guest, suppress(OSError):  # the program may have ended
            guest.sendall(str(code).encode())


def _become(arguments: Sequence[str], env: Mapping[str, str], streams: Sequence[int]) -> None:
    """Turns a fork into an ordinary process and runs the command in it. Returns if the command ends without error."""
    from tidemark.cli.main import entry

    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(env)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.argv = ["tidemark", *arguments]
    sys.modules["__main__"].__package__ = None  # otherwise the usage would show `python -m tests.support.tidemark`
    entry()


def _files(out: Path) -> list[int]:
    made = [os.open(out / name, os.O_WRONLY | os.O_CREAT) for name in ("out", "err")]
    return [os.open(os.devnull, os.O_RDONLY), *made]


def _warm(gates: bool) -> None:
    import confluent_kafka.admin  # noqa: F401
    import pyspark.sql.connect.session  # noqa: F401

    import tidemark.cli.main
    import tidemark.coordinator.checkpoints.job
    import tidemark.engine.compute
    import tidemark.engine.process.process_operator  # noqa: F401

    if gates:
        os.environ["GX_ANALYTICS_ENABLED"] = "false"
        import great_expectations.expectations  # noqa: F401
    assert "deltalake" not in sys.modules


def _admit(door: socket.socket, guests: dict[int, socket.socket]) -> bool:
    """Forks for a shell's program. Returns True in the child, after its command has ended without an error."""
    guest, _ = door.accept()
    _, streams, _, _ = socket.recv_fds(guest, 1, 3)
    with guest.makefile("rb") as said:
        asked = json.load(said)
    pid = os.fork()
    if not pid:
        for other in (door, guest, *guests.values()):
            other.close()
        os.chdir(asked["folder"])
        _become(asked["arguments"], asked["env"], streams)
        return True
    guests[pid] = guest
    for stream in streams:
        os.close(stream)
    return False


def _obey() -> bool | None:
    """Forks for a line of stdin. Returns True in the child after its command has ended, None at the end of stdin."""
    line = sys.stdin.buffer.raw.readline() if hasattr(sys.stdin.buffer, "raw") else b""
    if not line:
        return None
    asked = json.loads(line)
    pid = os.fork()
    if not pid:
        _become(asked["arguments"], asked["env"], _files(Path(asked["out"])))
        return True
    _tell(started=pid)
    return False


def main() -> None:
    """Forks for every line of stdin and every connection to the socket, and reports every child that ends."""
    _warm("gates" in sys.argv[2:])
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    door, guests = socket.socket(socket.AF_UNIX), dict[int, socket.socket]()
    door.bind(sys.argv[1])
    door.listen()
    while True:
        watched: list[int | socket.socket] = [0, woken, door]
        ready, _, _ = select.select(watched, [], [])
        if woken in ready:
            os.read(woken, 64)
            _bury(guests)
        if door in ready and _admit(door, guests):
            return
        if 0 in ready and _obey() is not False:
            return


if __name__ == "__main__":
    main()
