"""The smallest comparison, for correctness only: `python -m benchmarks.peers.smoke BOOTSTRAP FOLDER`.

Peers that run in a Spark driver process a load and one batch with deletes; the peer whose restore has the most steps is
also restored and forked. Some peers drop all points except the newest two, restore the older one and catch up. Tidemark
processes two months of flights. A wrong row ends the run with an error. The output has a line of JSON per checked
state, and per system that has dropped points.
"""

import json
import os
import sys
from itertools import chain
from pathlib import Path

from benchmarks.peers.backfilling import Backfill
from benchmarks.peers.lineup import KINDS
from benchmarks.peers.measuring import Case, Stage, measured
from benchmarks.peers.places import TOPICS, Stack
from benchmarks.peers.sparks import compiled, opened
from benchmarks.workload import Workload

SEED = 20130101
QUICK = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""JVM options for a short-lived Spark."""
LEFT_OUT = ("append-log", "merge", "append-tuned")
"""Settings that the other two peers of Structured Streaming cover together, and settings of the JVM alone."""
SMOKED = tuple(name for name, kind in KINDS.items() if (kind.has_driver or name == "delta-rs") and name not in LEFT_OUT)
RETAINED = ("tidemark", "append", "delta-merge")
KEPT = 2
MONTHS = 2
WORKLOAD = Workload(2_000, 500, SEED, "zipf", deleted=0.05)


def main(bootstrap: str, home: str) -> int:
    """Runs the comparison and prints its checks."""
    said = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # VACUUM reports its deletions on standard output
    classes = compiled(Path(home, "classes"))
    spark = opened(str(classes), f"{home}/scratch", {"spark.driver.memory": "1g", **QUICK})
    stack = Stack(bootstrap, "", Path(home, "cases"), classes)
    stages = (Stage("a", WORKLOAD, 1, SMOKED), Stage("f", WORKLOAD, 1, RETAINED))
    case = Case(TOPICS - 1, stages, restored=("append",), kept=(KEPT,))
    year = Backfill(TOPICS - 2, (), months=MONTHS)
    for row in chain(measured(case, stack), year.measured(stack)):
        if "checked" in row or "kept" in row:
            said.write(json.dumps(row) + "\n")
    spark.stop()
    said.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
