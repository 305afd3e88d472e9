"""`make test`: tests that wait for services most of the time, and beside them those that only compute.

The second half writes to a log, which is shown when both have ended. It gives way to the first one, whose services
have deadlines. Exit code 0 only where both passed.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

SERVICES = "kafka or spark or airflow or e2e or ports"
COMMAND = [sys.executable, "-m", "pytest", "--durations=25"]


def main() -> int:
    """Runs both halves; arguments go to both."""
    with tempfile.TemporaryDirectory(prefix="tidemark-tests-") as folder:
        log = Path(folder, "computing.log")
        computing = ["nice", "-n", "10", *COMMAND, "-q", "-p", "no:cacheprovider", "-m", f"not ({SERVICES})"]
        with log.open("wb") as output:
            beside = subprocess.Popen([*computing, *sys.argv[1:]], stdout=output, stderr=subprocess.STDOUT)
        try:
            waiting = subprocess.run([*COMMAND, "-m", SERVICES, *sys.argv[1:]], check=False).returncode
            computed = beside.wait()
        finally:
            if beside.poll() is None:
                beside.kill()
                beside.wait()
            sys.stdout.write(log.read_text(errors="replace"))
    return max(abs(waiting), abs(computed))


if __name__ == "__main__":
    sys.exit(main())
