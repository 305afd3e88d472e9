"""Cost of restore points over state size: a part of `make bench`, written to docs/benchmarks/restore-points.json.

For each size, a topic is loaded and a first checkpoint reads it. Savepoint, fork and restore are then timed; each
figure is the median of rounds in which the sizes take turns, so that a noisy neighbour affects all of them alike. The
time of a restore includes its checks: it looks at every file, and asks Kafka which offsets it still retains. Finally,
three forks of one savepoint each complete a checkpoint over the same records; the report has the bytes that each adds
to the disk, next to the size of the state.
"""

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import generator
from benchmarks.bench import SEED, SIZES, UPDATES, create_topic
from benchmarks.facts import made_by
from devstack import control
from tidemark.context import Context, open_context
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.model.retention.savepoint import SavepointRequest
from tidemark.operations import checkpoints, reads, savepoints, timelines
from tidemark.ports import PlanRequest
from tidemark.settings import load_settings

ROUNDS = 7
FORKS = 3
QUICK = os.environ.get("BENCH") == "quick"
KEPT = Path(__file__).resolve().parents[1] / "docs" / "benchmarks" / "restore-points.json"


def main() -> int:
    """Measures, prints one JSON object, and writes it to docs/benchmarks unless the run is a quick one."""
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as home:
        settings = load_settings(home=home, pipelines=str(Path(__file__).parent))
        control.up(settings, only=("kafka", "spark"))
        try:
            context = open_context(settings)
            for size in SIZES:
                create_topic(settings.kafka_address, f"bench-{size}")
                generator.produce(settings.kafka_address, f"bench-{size}", generator.first(size))
                checkpoints.run_once(context, f"bench-{size}", PlanRequest(origin="bench"))
            verbs = timed(context)
            forks = forked(context, settings.kafka_address)
        finally:
            control.down(settings)
    facts = made_by("make bench", SEED) | {"rounds": ROUNDS, "seconds": verbs, "forks": forks}
    report = json.dumps(facts, indent=2) + "\n"
    sys.stdout.write(report)
    if not QUICK:
        KEPT.write_text(report)
    return 0


def timed(context: Context) -> dict[str, dict[str, float]]:
    """The median seconds per verb and size, after one round that does not count."""

    def create(name: str, point: str) -> object:
        asked = SavepointRequest(name=point, owner="bench", origin="bench")
        return savepoints.open_savepoints(context, name).create(asked)

    times: dict[str, dict[int, list[float]]] = {}
    for turn in range(ROUNDS + 1):
        for size in SIZES:
            name, point = f"bench-{size}", f"point-{turn}"
            request = RestoreRequest(savepoint=point)
            verbs: dict[str, Callable[[], object]] = {
                "savepoint": partial(create, name, point),
                "fork": partial(timelines.fork, context, name, f"fork-{turn}", request),
                "restore": partial(timelines.restore, context, name, request),
            }
            for verb, act in verbs.items():
                started = time.perf_counter()
                act()
                if turn:
                    times.setdefault(verb, {}).setdefault(size, []).append(time.perf_counter() - started)
    return {v: {str(n): round(statistics.median(t), 4) for n, t in sizes.items()} for v, sizes in times.items()}


def forked(context: Context, bootstrap: str) -> dict[str, Any]:
    """Measures the bytes that forks of one savepoint of the largest state add to the disk."""
    size = SIZES[-1]
    name = f"bench-{size}"
    generator.produce(bootstrap, name, generator.uniform(size, UPDATES, SEED))
    before, added = _bytes(context), []
    for n in range(FORKS):
        fork = f"third-{n}"
        timelines.fork(context, name, fork, RestoreRequest(savepoint=f"point-{ROUNDS}"))
        made = checkpoints.run_once(context, name, PlanRequest(origin="bench"), timeline=fork).checkpoint
        assert made is not None
        added.append({"run_bytes": made.sealed.acks[0].run_bytes, "added_bytes": _bytes(context) - before})
        before = _bytes(context)
    full = reads.get_checkpoint(context, name).sealed.acks[0].handle.bytes
    return {"keys": size, "state_bytes": full, "forks": added}


def _bytes(context: Context) -> int:
    assert isinstance(context.settings.warehouse, Path)
    return sum(f.stat().st_size for f in context.settings.warehouse.rglob("*") if f.is_file())


if __name__ == "__main__":
    sys.exit(main())
