"""Runs `make test` and `make test-more` in parallel lanes: some need services, the others only compute.

`make test` has four lanes. Tests of the first share a broker and a Spark server; each test of the second starts a whole
stack. The third and the fourth begin with tests that only compute. These run at a lower priority, because the services
of the first two lanes have deadlines. After them, the third lane runs DAGs inside its own process, and the fourth tests
that need only a broker.

`make test-more` runs the tests that take minutes each: two lanes with services and two that compute.

The first lane prints to the terminal; the others write logs, which are printed when all lanes have ended, followed by
the duration of each part. The exit code is 0 only if all parts passed.
"""

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from threading import Event, Thread

OWN = "e2e"
BROKER = "kafka and not (spark or ports or e2e)"
SHARED = "(spark or ports) and not e2e"
AIRFLOW = "airflow and not (kafka or spark or ports or e2e)"
COMPUTING = "not (kafka or spark or ports or airflow or e2e)"
WALKS = ["tests/contract", "tests/property", "tests/publications"]
"""These take about a third of the time that the computing tests need; the rest is the fourth lane."""
LONG_WITH_SERVICES = (
    ["tests/faults", "tests/s3"],
    ["tests/engine/test_cluster.py", "tests/engine/test_rescaling.py"],
)
NIGHTLY = [
    "tests/airflow/test_long_backfill.py",
    "tests/e2e/test_postgres.py",
    "tests/perf/peers/test_peers.py",
    "tests/perf/test_large_state.py",
    "tests/s3/test_demo.py",
]
"""These repeat in large what other tests show in small: `make test-nightly`."""
LONG = (
    ["tests/power_loss", "tests/simulation", "tests/deliveries", "tests/copies"],
    ["tests/retention"],
)
"""Tests that try hundreds of crash states and thousands of schedules, and that copy warehouses between stores."""
MORE = "--more"
COMMAND = [sys.executable, "-m", "pytest", "--durations=25"]
BESIDE = [*COMMAND, "-q", "-p", "no:cacheprovider"]


class Beside(Thread):
    """A lane that runs in parallel with the first one: all of its commands in sequence, even if some of them fail."""

    def __init__(self, commands: Sequence[Sequence[str]], log: Path) -> None:
        super().__init__(daemon=True)
        self.commands, self.log, self.worst, self.took = commands, log, 0, list[str]()
        self._stopped = Event()
        self._child: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        with self.log.open("wb") as output:
            for command in self.commands:
                if self._stopped.is_set():
                    return
                began = time.monotonic()
                self._child = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
                self.worst = max(self.worst, abs(self._child.wait()))
                self.took.append(_took(command, began))

    def stop(self) -> None:
        """Interrupts the running command like Ctrl-C, and gives it 60 seconds to stop its services."""
        self._stopped.set()
        child = self._child
        if child is not None and child.poll() is None:
            child.send_signal(signal.SIGINT)
            self.join(60)
            child.kill()
        self.join()


def _took(command: Sequence[str], began: float) -> str:
    own = [word for word in command if word not in (*BESIDE, "nice", "-n", "10") and not word.startswith("-")]
    return f"{(time.monotonic() - began) / 60:5.1f} min  {' '.join(own)}"


def _without(folders: Sequence[str]) -> list[str]:
    return [f"--ignore={folder}" for folder in folders]


def _lanes(more: bool, given: Sequence[str]) -> list[list[list[str]]]:
    """The commands of each lane, in order. The first lane prints to the terminal."""
    nice, given = ["nice", "-n", "10", *BESIDE], [*given, *_without(NIGHTLY)]
    if more:
        watched, beside = LONG_WITH_SERVICES
        long = [[[*nice, *given, *folders]] for folders in LONG]
        return [[[*COMMAND, *given, *watched]], [[*BESIDE, *given, *beside]], *long]
    given = [*given, *(word for folders in (*LONG_WITH_SERVICES, *LONG) for word in _without(folders))]
    computing = [*nice, "-m", COMPUTING, *given]
    return [
        [[*COMMAND, "-m", SHARED, *given]],
        [[*BESIDE, "-m", OWN, *given]],
        [[*computing, *WALKS], [*BESIDE, "-m", AIRFLOW, *given]],
        [[*computing, *_without(WALKS)], [*BESIDE, "-m", BROKER, *given]],
    ]


def main() -> int:
    """Runs all lanes. `--more` selects the long tests; pytest gets all other arguments, which must not name tests."""
    given = [word for word in sys.argv[1:] if word != MORE]
    watched, *others = _lanes(MORE in sys.argv, given)
    with tempfile.TemporaryDirectory(prefix="tidemark-tests-") as folder:
        lanes = [Beside(commands, Path(folder, f"{n}.log")) for n, commands in enumerate(others)]
        for lane in lanes:
            lane.start()
        began, took = time.monotonic(), list[str]()
        try:
            (command,) = watched
            worst = subprocess.run(command, check=False).returncode
            took.append(_took(command, began))
            for lane in lanes:
                lane.join()
        finally:
            for lane in lanes:
                lane.stop()
                sys.stdout.write(lane.log.read_text(errors="replace"))
                took += lane.took
        print(*took, f"{(time.monotonic() - began) / 60:5.1f} min  in all", sep="\n")
    return max(abs(worst), *(lane.worst for lane in lanes))


if __name__ == "__main__":
    sys.exit(main())
