"""`python -m benchmarks.peers`, a part of `make bench`: compares Tidemark with other systems in one run.

The results are written to docs/benchmarks/peers.json, peers.md and peers.svg; `BENCH=quick` runs a small version and
writes separate files that Git ignores. A wrong row in the state of any system ends the run before anything is written.
Apache Flink takes part if `make setup-flink` has fetched it.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.bench import SEED
from benchmarks.facts import made_by, versions
from benchmarks.peers.backfilling import Backfill
from benchmarks.peers.flink import class_path
from benchmarks.peers.measuring import Case, Row, Stage, measured
from benchmarks.peers.page import write_page
from benchmarks.peers.places import JARS, Stack
from benchmarks.peers.setup_flink import VERSION, is_here
from benchmarks.peers.sparks import WARM, compiled, opened
from benchmarks.workload import Workload
from devstack import control
from tidemark.settings import load_settings

AnyCase = Case | Backfill
QUICK = os.environ.get("BENCH") == "quick"
UPDATES = 1_000 if QUICK else 20_000
EVERY = (
    *("tidemark", "tidemark-server", "append", "append-log", "python-state", "merge", "merge-log"),
    *("delta-merge", "delta-vectors", "delta-rs", "overwrite", "flink"),
)
MAIN = ("tidemark", "tidemark-server", "append", "append-log", "merge", "delta-merge", "delta-rs", "flink")
LIGHT = ("tidemark", "append", "append-log", "delta-merge", "flink")
LARGE = ("tidemark", "tidemark-server", "append", "flink")
FRESH = ("tidemark", "tidemark-server", "append", "append-tuned")
SMALL = ("tidemark", "tidemark-server", "append", "merge", "delta-merge", "overwrite", "flink")
RESTORED = ("tidemark", "append", "delta-merge", "flink")
RESTORED_LARGE = ("tidemark", "append", "flink")
BEST = ("tidemark", "tidemark-server", "append", "flink")
"""The closest systems run more rounds, for ratios and crossings: Tidemark in both of its ways, append, and Flink."""
KEPT = ("tidemark", "tidemark-server", "append", "delta-merge", "delta-vectors", "flink")
YEAR = ("tidemark", "append", "merge", "delta-merge", "flink")


def cases(flink: bool) -> list[AnyCase]:
    """The cases to measure, in order; the letters are those of issue 8.

    Args:
        flink: whether Apache Flink is installed.
    """
    many: list[AnyCase] = [_warm_up(), *_by_size(), _kept(), Backfill(6, YEAR), _fresh(100_000, 4)]
    found = _quick() if QUICK else many
    return found if flink else [_without_flink(case) for case in found]


def _quick() -> list[AnyCase]:
    keys = 20_000
    few = Case(1, (Stage("f", _workload(keys), 4, BEST),), kept=(3, 2))
    stages = (
        Stage("a", _workload(keys), 2, SMALL),
        Stage("c", _workload(keys, choice="zipf"), 1, LARGE),
        Stage("h", _workload(keys, 0), 1, SMALL),
    )
    return [Case(0, stages, restored=RESTORED, counted=2), few, Backfill(2, ("tidemark", "append"), months=2)]


def _by_size() -> list[Case]:
    """Every system at 0.5 M keys; to save time, larger sizes leave out the systems that are slow at that size."""
    half, two, eight = 500_000, 2_000_000, 8_000_000
    choices = [Stage("c", _workload(half, UPDATES, choice), 3, LIGHT) for choice in ("zipf", "sliding")]
    churn = [
        Stage("b", _workload(two, n), rounds, kinds)
        for n in (2_000, 200_000)
        for rounds, kinds in ((3, LIGHT), (9, BEST))
    ]
    idle = Stage("h", _workload(half, 0), 2, EVERY)
    return [
        Case(0, (*_rounds(half, EVERY), *choices, idle), restored=RESTORED, counted=7),
        Case(1, (*_rounds(two, MAIN), *churn)),
        Case(2, _rounds(eight, LARGE), restored=RESTORED_LARGE),
    ]


def _rounds(keys: int, kinds: tuple[str, ...]) -> tuple[Stage, ...]:
    """Four rounds for all systems and eight more for `BEST`; the first round of each stage does not count."""
    return Stage("a", _workload(keys), 4, kinds), Stage("a", _workload(keys), 8, BEST)


def _kept() -> Case:
    """Forty checkpoints for `BEST`, the last thirty for every system that keeps points, of which three then remain."""
    half = _workload(500_000)
    return Case(5, (Stage("f", half, 10, BEST), Stage("f", half, 30, KEPT)), kept=(30, 3))


def _warm_up() -> Case:
    """Rounds that no page shows: a JVM is faster after some rounds, and the first size must not bear that cost.

    They warm up two JVMs: the driver in this process, which Tidemark shares with all Spark peers, and the Connect
    server.
    """
    small = Stage("warm-up", _workload(20_000, 1_000), 3, tuple(k for k in EVERY if k != "flink"))
    return Case(4, (small, Stage("warm-up", _workload(20_000), 20, BEST)))


def _fresh(keys: int, rounds: int) -> Case:
    return Case(3, (Stage("d", _workload(keys), rounds, FRESH),), "fresh")


def _workload(keys: int, updates: int = UPDATES, choice: Any = "uniform") -> Workload:
    return Workload(keys, updates, SEED, choice)


def _without_flink(case: AnyCase) -> AnyCase:
    def rest(kinds: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(kind for kind in kinds if kind != "flink")

    if isinstance(case, Backfill):
        return replace(case, kinds=rest(case.kinds))
    stages = tuple(replace(stage, kinds=rest(stage.kinds)) for stage in case.stages)
    return replace(case, stages=stages, restored=rest(case.restored))


def main() -> int:
    """Runs all cases in a separate stack and writes the page."""
    flink = is_here()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="tidemark-peers-") as home:
        settings = load_settings(home=home)
        control.up(settings, only=("kafka", "spark"))
        try:
            if not QUICK:
                subprocess.run([sys.executable, "-m", "tidemark.engine.session.class_archive", str(JARS)], check=True)
            classes = compiled(Path(home, "classes"))
            if flink:
                compiled(classes, "FlinkTotals.java", class_path(""))
            spark = opened(str(classes), f"{home}/scratch", WARM)
            stack = Stack(settings.kafka_address, settings.spark_address, Path(home, "cases"), classes)
            for case in cases(flink):
                for row in case.measured(stack) if isinstance(case, Backfill) else measured(case, stack):
                    sys.stderr.write(json.dumps(row) + "\n")
                    rows.append(row)
            spark.stop()
        finally:
            control.down(settings)
            shutil.rmtree(Path(home, "cases"), ignore_errors=True)
    write_page(_facts(flink), rows)
    return 0


def _facts(flink: bool) -> dict[str, Any]:
    return made_by(f"{'BENCH=quick ' if QUICK else ''}make bench", SEED) | {
        "load": [round(load, 2) for load in os.getloadavg()],
        "versions": versions() | ({"flink": VERSION} if flink else {}),
        "updates": UPDATES,
    }


if __name__ == "__main__":
    sys.exit(main())
