"""Where a fresh process spends its time: `PYTHONPATH=include:. python -m benchmarks.fresh_start` prints a table.

The systems take turns processing 20,000 updates at 100,000 keys. Each run is a new process with its own driver, as in
scenario d of the comparison (`peers`). For each step, the table shows the median seconds and, in brackets, the median
CPU seconds of Python and its JVM, which are more reliable while other work uses the machine.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from benchmarks.peers.places import JARS, Place, child_environment, topic_of
from benchmarks.peers.titles import TITLES

KEYS, UPDATES, ROUNDS = 100_000, 20_000, 3
SYSTEMS = ("tidemark", "append", "append-tuned")
PYTHON, JVM, CONTEXT = "Python and its imports", "JVM", "Spark context"
SESSION, RUN = "session", "the run itself"
Told = Mapping[str, tuple[float, float]]
"""The seconds and CPU seconds of each step; `classes` has the number of loaded classes instead."""


def main() -> int:
    """Starts a broker and measures; with an argument, runs as one of the measured processes."""
    if sys.argv[1:]:
        sys.stdout.write(json.dumps(_once(json.loads(sys.argv[1]))) + "\n")
        return 0
    from benchmarks.peers.sparks import compiled
    from devstack import control
    from tidemark.settings import load_settings

    subprocess.run(
        [sys.executable, "-m", "tidemark.engine.session.class_archive", str(JARS)], check=True, stdout=sys.stderr
    )
    with tempfile.TemporaryDirectory(prefix="tidemark-fresh-") as home:
        settings = load_settings(home=home)
        control.up(settings, only=("kafka",))
        try:
            found = _measured(settings.kafka_address, Path(home), str(compiled(Path(home, "classes"))))
        finally:
            control.down(settings)
    for line in _table(found):
        sys.stdout.write(f"{line}\n")
    return 0


def _measured(bootstrap: str, home: Path, classes: str) -> dict[str, list[Told]]:
    """Measures the rounds of every system, except the load, during which the query's class archive is created."""
    from benchmarks import generator
    from benchmarks.bench import SEED, create_topic
    from benchmarks.peers.places import in_turn
    from benchmarks.workload import Workload

    workload, above = Workload(KEYS, UPDATES, SEED), KEYS
    places = {kind: Place(bootstrap, topic_of(0), str(home / kind / "state"), classes) for kind in SYSTEMS}
    found: dict[str, list[Told]] = {kind: [] for kind in SYSTEMS}
    create_topic(bootstrap, topic_of(0))
    for n in range(-1, ROUNDS):
        generator.produce(bootstrap, topic_of(0), workload.load() if n < 0 else workload.batch(n, above))
        above += workload.fresh if n >= 0 else 0
        for kind in in_turn(SYSTEMS, max(n, 0)):
            Path(places[kind].folder).mkdir(parents=True, exist_ok=True)
            told = _process({"kind": kind, "place": places[kind].as_json(), "scratch": str(home / "scratch")})
            if n >= 0:
                found[kind].append(told)
    return found


def _process(asked: Mapping[str, Any]) -> Told:
    command = [sys.executable, "-m", "benchmarks.fresh_start", json.dumps({**asked, "began": time.monotonic()})]
    done = subprocess.run(command, env=child_environment(), stdout=subprocess.PIPE, text=True, check=True)
    told: Told = json.loads(done.stdout.splitlines()[-1])
    return told


def _once(asked: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """Times the steps of one run, from the moment when the parent process requested it."""
    from pyspark.core import context

    from benchmarks.peers.fresh_drivers import begun, left
    from benchmarks.peers.lineup import KINDS

    place, jvm, steps = Place(**asked["place"]), list[psutil.Process](), [("", asked["began"], 0.0)]

    def mark(step: str) -> None:
        used = time.process_time() + sum(sum(process.cpu_times()[:4]) for process in jvm)
        steps.append((step, time.monotonic(), used))

    def launched(*given: Any, **named: Any) -> Any:
        mark(PYTHON)
        gateway = launch(*given, **named)
        jvm.append(psutil.Process(gateway.proc.pid))
        mark(JVM)
        return gateway

    def initialized(*given: Any) -> Any:
        made = initialize(*given)
        mark(CONTEXT)
        return made

    launch: Callable[..., Any] = vars(context)["launch_gateway"]
    initialize = context.SparkContext._initialize_context
    vars(context)["launch_gateway"] = launched
    context.SparkContext._initialize_context = initialized  # type: ignore[assignment, method-assign]
    spark = begun(asked["kind"], place, asked["scratch"])
    mark(SESSION)
    KINDS[asked["kind"]].make(place, "local[2]").take()
    mark(RUN)
    told = {
        step: (at - was, used - before) for (_, was, before), (step, at, used) in zip(steps, steps[1:], strict=False)
    }
    assert spark._jvm is not None
    classes = spark._jvm.java.lang.management.ManagementFactory.getClassLoadingMXBean().getTotalLoadedClassCount()
    left(asked["kind"], place, spark)
    return told | {"classes": (classes, 0.0)}


def _table(found: Mapping[str, Sequence[Told]]) -> Iterator[str]:
    yield f"| step | {' | '.join(TITLES[kind] for kind in found)} |"
    yield "|---|" + "---:|" * len(found)
    for step in (PYTHON, JVM, CONTEXT, SESSION, RUN):
        yield f"| {step} | {' | '.join(_cell([each[step] for each in rounds]) for rounds in found.values())} |"
    sums = [[_sum(told) for told in rounds] for rounds in found.values()]
    yield f"| all | {' | '.join(_cell(rounds) for rounds in sums)} |"
    loaded = (statistics.median(told["classes"][0] for told in rounds) for rounds in found.values())
    yield f"| classes loaded | {' | '.join(f'{count:,.0f}' for count in loaded)} |"


def _sum(told: Told) -> tuple[float, float]:
    parts = [found for step, found in told.items() if step != "classes"]
    return sum(wall for wall, _ in parts), sum(used for _, used in parts)


def _cell(found: Sequence[tuple[float, float]]) -> str:
    wall, used = (statistics.median(column) for column in zip(*found, strict=True))
    return f"{wall:.1f} ({used:.1f})"


if __name__ == "__main__":
    sys.exit(main())
