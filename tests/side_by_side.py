"""`make test` in two lanes: tests of services that one broker and one Spark serve, and beside them all others.

The second lane begins with the tests that have a whole stack of their own, goes on with DAG runs inside of a process,
and then only computes; that part gives way to the first lane, whose services have deadlines. It writes to a log, which
is shown when both have ended. Exit code 0 only where all parts passed.
"""

import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from threading import Event, Thread

SERVICES = "kafka or spark or ports"
SHARED = f"({SERVICES}) and not e2e"
OWN = "e2e"
AIRFLOW = f"airflow and not ({SERVICES} or e2e)"
COMPUTING = f"not ({SERVICES} or airflow or e2e)"
COMMAND = [sys.executable, "-m", "pytest", "--durations=25"]
BESIDE = [*COMMAND, "-q", "-p", "no:cacheprovider"]


class Beside(Thread):
    """The second lane: commands one after the other, all of them, whatever the others came to."""

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


def main() -> int:
    """Runs both lanes; arguments go to all their parts."""
    given = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="tidemark-tests-") as folder:
        log = Path(folder, "beside.log")
        computing = ["nice", "-n", "10", *BESIDE, "-m", COMPUTING, *given]
        beside = Beside([[*BESIDE, "-m", OWN, *given], [*BESIDE, "-m", AIRFLOW, *given], computing], log)
        beside.start()
        try:
            worst = subprocess.run([*COMMAND, "-m", SHARED, *given], check=False).returncode
            beside.join()
        finally:
            beside.stop()
            sys.stdout.write(log.read_text(errors="replace"))
    return max(abs(worst), beside.worst)


if __name__ == "__main__":
    sys.exit(main())
