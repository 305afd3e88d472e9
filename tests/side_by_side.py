"""`make test` and `make test-more`: lanes side by side, of tests that share services, and of tests that only compute.

`make test` has four. The first one's tests share a broker and a Spark. The second has those with a whole stack of their
own. The third and the fourth compute, and give way to these two, whose services have deadlines: they take what is left
while those wait. Then the third has what needs a broker and no more, the fourth DAG runs inside of a process.
`make test-more` has what takes minutes for one answer: two lanes with services, and two that compute. All but the
first lane write to logs, shown when all have ended, and at last how long each part took. Exit code 0 only where all
parts passed.
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
WALKS = ["tests/property", "tests/copies"]
"""About half of what computes."""
LONG_WITH_SERVICES = (
    ["tests/faults", "tests/s3"],
    [
        "tests/engine/test_cluster.py",
        "tests/engine/test_rescaling.py",
        "tests/perf/test_large_state.py",
        "tests/perf/peers",
    ],
)
LONG = (["tests/power_loss", "tests/simulation", "tests/deliveries"], ["tests/retention"])
"""Crash states and schedules by the thousand."""
MORE = "--more"
COMMAND = [sys.executable, "-m", "pytest", "--durations=25"]
BESIDE = [*COMMAND, "-q", "-p", "no:cacheprovider"]


class Beside(Thread):
    """A lane beside the first one: commands one after the other, all of them, whatever the others came to."""

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
        """Interrupts what runs, as Ctrl-C does, and leaves it time to stop its services."""
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
    """Per lane its commands, one after the other; the first lane is for a person to watch."""
    nice = ["nice", "-n", "10", *BESIDE]
    if more:
        watched, beside = LONG_WITH_SERVICES
        long = [[[*nice, *given, *folders]] for folders in LONG]
        return [[[*COMMAND, *given, *watched]], [[*BESIDE, *given, *beside]], *long]
    given = [*given, *(word for folders in (*LONG_WITH_SERVICES, *LONG) for word in _without(folders))]
    computing = [*nice, "-m", COMPUTING, *given]
    return [
        [[*COMMAND, "-m", SHARED, *given]],
        [[*BESIDE, "-m", OWN, *given]],
        [[*computing, *WALKS], [*BESIDE, "-m", BROKER, *given]],
        [[*computing, *_without(WALKS)], [*BESIDE, "-m", AIRFLOW, *given]],
    ]


def main() -> int:
    """Runs all lanes; `--more` is for what takes long, other arguments, which name no tests, go to all parts."""
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
