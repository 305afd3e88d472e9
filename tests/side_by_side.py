"""`make test` in four lanes: tests of services that one broker and one Spark serve, and beside them all others.

The second lane has the tests with a whole stack of their own, then DAG runs inside of a process, then what needs a
broker and no more. The third and the fourth only compute, and give way to these two, whose services have deadlines:
they take what is left while those wait. When the fourth has computed, it has a broker and a Spark of its own, for
what kills drivers and for a warehouse in a bucket. All but the first write to logs, shown when all have ended. Exit
code 0 only where all parts passed.
"""

import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from threading import Event, Thread

OWN = "e2e"
BROKER = "kafka and not (spark or ports or e2e)"
SHARED = "(spark or ports) and not e2e"
AIRFLOW = "airflow and not (kafka or spark or ports or e2e)"
COMPUTING = "not (kafka or spark or ports or airflow or e2e)"
WALKS = ["tests/retention", "tests/simulation", "tests/property", "tests/copies"]
"""About half of what computes."""
KILLS = ["tests/faults", "tests/s3"]
"""About a third of what needs a Spark that others use too."""
COMMAND = [sys.executable, "-m", "pytest", "--durations=25"]
BESIDE = [*COMMAND, "-q", "-p", "no:cacheprovider"]


class Beside(Thread):
    """A lane beside the first one: commands one after the other, all of them, whatever the others came to."""

    def __init__(self, commands: Sequence[Sequence[str]], log: Path) -> None:
        super().__init__(daemon=True)
        self.commands, self.log, self.worst = commands, log, 0
        self._stopped = Event()
        self._child: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        with self.log.open("wb") as output:
            for command in self.commands:
                if self._stopped.is_set():
                    return
                self._child = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
                self.worst = max(self.worst, abs(self._child.wait()))

    def stop(self) -> None:
        """Interrupts what runs, as Ctrl-C does, and leaves it time to stop its services."""
        self._stopped.set()
        child = self._child
        if child is not None and child.poll() is None:
            child.send_signal(signal.SIGINT)
            self.join(60)
            child.kill()
        self.join()


def _without(folders: Sequence[str]) -> list[str]:
    return [f"--ignore={folder}" for folder in folders]


def main() -> int:
    """Runs all lanes; arguments, which name no tests, go to all their parts."""
    given = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="tidemark-tests-") as folder:
        computing = ["nice", "-n", "10", *BESIDE, "-m", COMPUTING, *given]
        parts = [
            [[*BESIDE, "-m", kind, *given] for kind in (OWN, AIRFLOW, BROKER)],
            [[*computing, *WALKS]],
            [
                [*computing, *_without(WALKS)],
                [*BESIDE, "-m", SHARED, *given, *KILLS],
            ],
        ]
        lanes = [Beside(commands, Path(folder, f"{n}.log")) for n, commands in enumerate(parts)]
        for lane in lanes:
            lane.start()
        try:
            shared = [*COMMAND, "-m", SHARED, *given, *_without(KILLS)]
            worst = subprocess.run(shared, check=False).returncode
            for lane in lanes:
                lane.join()
        finally:
            for lane in lanes:
                lane.stop()
                sys.stdout.write(lane.log.read_text(errors="replace"))
    return max(abs(worst), *(lane.worst for lane in lanes))


if __name__ == "__main__":
    sys.exit(main())
