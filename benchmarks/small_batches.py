"""Small batches of real flights: five operators with a gate next to one fold, and the command line around a run.

In each round, 20,000 flights are sent. One process makes a checkpoint of the demo's pipeline, and one of a pipeline
with a fold alone; then `tidemark run` makes a checkpoint of a third pipeline, which is equal to the second, and
`tidemark state show` shows one key. `PYTHONPATH=include:. python -m benchmarks.small_batches` writes
docs/benchmarks/small-batches.json.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks import generator
from benchmarks.bench import create_topic
from benchmarks.facts import made_by
from benchmarks.report import FOLDER
from devstack import control
from devstack.demo.flights_data import read_flights
from devstack.demo.topic_loader import partition_of
from tidemark.context import open_context
from tidemark.operations import checkpoints
from tidemark.operations.checkpoints import Made
from tidemark.ports import PlanRequest
from tidemark.settings import Settings, load_settings

QUICK = os.environ.get("BENCH") == "quick"
SIZE, ROUNDS, WARM, PARTITIONS = 20_000, 3 if QUICK else 16, 1 if QUICK else 6, 4
KEY, PHASES = "N14228", "phases_ms"
DECLARED = """
from dataclasses import replace
from pipelines.flights import flights

one, by_command = (
    replace(flights, name=name, operators=flights.operators[:1], broadcast=[], gate=None)
    for name in ("one", "by-command")
)
"""


def main() -> int:
    """Measures, prints the medians, and writes all rounds unless the run is a quick one."""
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as home:
        folder = Path(home, "pipelines")
        folder.mkdir()
        (folder / "declared.py").write_text(DECLARED)
        settings = load_settings(home=home, pipelines=str(folder))
        control.up(settings, only=("kafka", "spark"))
        try:
            rows = list(_measured(settings, {"TIDEMARK_HOME": home, "TIDEMARK_PIPELINES": str(folder)}))
        finally:
            control.down(settings)
    counted = rows[WARM:]
    medians = {name: round(statistics.median(row[name] for row in counted), 3) for name in counted[0] if name != PHASES}
    around = [row["run"] - row["one_fold"] for row in counted]
    found = {
        "five_to_one": round(medians["five_operators"] / medians["one_fold"], 2),
        "around_a_run": round(statistics.median(around), 3),
    }
    body = made_by("PYTHONPATH=include:. python -m benchmarks.small_batches", 0)
    body |= {"records": SIZE, "rounds": len(counted), "medians": medians, **found}
    sys.stdout.write(json.dumps(body, indent=1) + "\n")
    if not QUICK:
        (FOLDER / "small-batches.json").write_text(json.dumps(body | {"rows": rows}, indent=1) + "\n")
    return 0


def _measured(settings: Settings, variables: dict[str, str]) -> Iterator[dict[str, Any]]:
    # An installed package has its bytecode; with this variable, as in images, a checkout compiles in each command.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | variables
    command = [sys.executable, "-m", "tidemark.cli.main"]
    for table in ("planes", "airlines"):
        subprocess.run([*command, "topic", "load", table], env=env, check=True, stdout=subprocess.DEVNULL)
    create_topic(settings.kafka_address, "flights")
    context, sent = open_context(settings), read_flights()

    def run(name: str) -> Callable[[], Any]:
        return lambda: checkpoints.run_once(context, name, PlanRequest(origin="bench"))

    def by_command(*words: str) -> Callable[[], Any]:
        return lambda: subprocess.run([*command, *words], env=env, check=True, stdout=subprocess.DEVNULL)

    measured = {
        "five_operators": run("flights"),
        "one_fold": run("one"),
        "run": by_command("run", "by-command", "--json"),
        "state_show": by_command("state", "show", "one", "aircraft", "--key", KEY),
        "help": by_command("--help"),
    }
    for n in range(ROUNDS):
        batch = sent[n * SIZE : (n + 1) * SIZE]
        records = ((partition_of(f, PARTITIONS), f.key, f.value, f.timestamp_ms) for f in batch)
        generator.send(settings.kafka_address, "flights", records)
        row: dict[str, Any] = {PHASES: {}}
        for name, act in measured.items():
            started = time.perf_counter()
            made = act()
            row[name] = round(time.perf_counter() - started, 3)
            if isinstance(made, Made) and made.checkpoint is not None:
                row[PHASES][name] = dict(made.checkpoint.sealed.timings_ms)
        sys.stderr.write(json.dumps(row) + "\n")
        yield row


if __name__ == "__main__":
    sys.exit(main())
