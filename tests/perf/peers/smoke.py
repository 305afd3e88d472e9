"""The smallest comparison, for correctness only: `python -m tests.perf.peers.smoke BOOTSTRAP FOLDER`.

Peers that run in a Spark driver take a load and one batch with deletes; the one whose restore has most steps is
restored and forked too. A wrong row ends it with an error. Prints one line of JSON per checked state.
"""

import json
import sys
from pathlib import Path

from tests.perf.peers.lineup import KINDS
from tests.perf.peers.measuring import Case, Stack, Stage, measured
from tests.perf.peers.places import TOPICS
from tests.perf.peers.sparks import compiled, opened
from tests.perf.workload import Workload

SEED = 20130101
QUICK = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""For a Spark that ends soon."""
LEFT_OUT = ("append-log", "merge")
"""Another mixture of two settings that the other two of Structured Streaming have between them."""
SMOKED = tuple(name for name, kind in KINDS.items() if kind.has_driver and name not in LEFT_OUT)
WORKLOAD = Workload(2_000, 500, SEED, "zipf", deleted=0.05)


def main(bootstrap: str, home: str) -> int:
    """Runs the one case."""
    classes = compiled(Path(home, "classes"))
    spark = opened(str(classes), f"{home}/scratch", {"spark.driver.memory": "1g", **QUICK})
    stack = Stack(bootstrap, "", Path(home, "cases"), classes)
    for row in measured(Case(TOPICS - 1, (Stage("a", WORKLOAD, 1, SMOKED),), restored=("append",)), stack):
        if "checked" in row:
            sys.stdout.write(json.dumps(row) + "\n")
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
