"""`make test-faults`: the full cross of crash points, in two lanes, each with a broker and a Spark server of its own.

What kills Spark servers waits for their starts; the other lane computes meanwhile. Both write the book of cases,
docs/benchmarks/faults.csv, with their seed. `TIDEMARK_TEST_SEED` repeats a run.
"""

import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

SERVERS = "restart or killed_spark_server"


def main() -> int:
    """Runs both lanes; further arguments go to both.

    Returns:
        0 where every case passed.
    """
    seed = os.environ.get("TIDEMARK_TEST_SEED") or str(random.SystemRandom().randrange(10**8))
    environment = {**os.environ, "TIDEMARK_TEST_SWEEP": "full", "TIDEMARK_TEST_SEED": seed}
    command = [sys.executable, "-m", "pytest", "tests/faults", "-p", "no:cacheprovider", *sys.argv[1:]]
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="tidemark-cross-") as folder:
        log = Path(folder, "servers.log")
        with log.open("wb") as output:
            beside = subprocess.Popen(
                [*command, "-q", "-k", SERVERS], env=environment, stdout=output, stderr=subprocess.STDOUT
            )
            try:
                first = subprocess.run([*command, "-k", f"not ({SERVERS})"], env=environment, check=False).returncode
                second = beside.wait()
            finally:
                beside.terminate()
                beside.wait()
                sys.stdout.write(log.read_text(errors="replace"))
    return max(abs(first), abs(second))


if __name__ == "__main__":
    sys.exit(main())
