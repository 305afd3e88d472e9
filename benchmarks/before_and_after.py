"""The same work by an older commit and by this tree, in turns on the same machine.

`PYTHONPATH=include:. python -m benchmarks.before_and_after COMMIT` checks the commit out into a temporary folder,
starts a stack of each tree, and has both make the same checkpoints, compactions and reads; the tree that begins changes
from round to round. It writes docs/benchmarks/before-and-after.json.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.facts import made_by
from benchmarks.peers.commanded import CommandedProcess
from benchmarks.peers.places import JARS, ROOT
from benchmarks.report import FOLDER

QUICK = os.environ.get("BENCH") == "quick"
KEYS = 20_000 if QUICK else 1_000_000
ROUNDS = {"small": 20, "medium": 6, "large": 4, "process": 6, "compact": 4, "resolve": 4, "show": 6}
FIRST = ("begin", "load", "load_process")
"""Made once by each tree, before all rounds; a tree that begins nothing yet waits until both stacks run."""
UNCOUNTED = {"small": 6}
"""The first rounds of a verb that do not count; one of every other."""
COMMAND = "PYTHONPATH=include:. python -m benchmarks.before_and_after"
DRIVER = """
import json, os, subprocess, sys, time
from pathlib import Path

from benchmarks import generator
from confluent_kafka.admin import AdminClient, NewTopic
from devstack import control
from tidemark.context import open_context
from tidemark.operations import checkpoints, compaction
from tidemark.ports import PlanRequest
from tidemark.readers.state_reader import read_state
from tidemark.settings import load_settings

home, keys = sys.argv[1], int(sys.argv[2])
said = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
os.environ["TIDEMARK_PIPELINES"] = f"{home}/pipelines"
os.environ["TIDEMARK_HOME"] = home
Path(home, "pipelines").mkdir(parents=True)
Path(home, "pipelines", "sized.py").write_text(
    f"from benchmarks.pipelines import processed, sized\\nfold, process = sized({keys}), processed({keys})\\n"
)
settings = load_settings(home=home, pipelines=f"{home}/pipelines")
topic, seed = f"bench-{keys}", 0


def send(updates):
    generator.produce(settings.kafka_address, topic, updates)


def run(name):
    checkpoints.run_once(context, name, PlanRequest(origin="bench"))


def resolve():
    newest = next(context.coordinator(topic).checkpoints())
    schema = newest.plan.schemas["totals"]
    read_state(context.warehouse.root, schema, newest.handles["totals"], newest.now)


def show():
    words = ["state", "show", topic, "totals", "--key", generator.key_text(1)]
    subprocess.run([sys.executable, "-m", "tidemark.cli.main", *words], check=True, stdout=subprocess.DEVNULL)


def updates(count):
    global seed
    seed += 1
    send(generator.uniform(keys, count, seed))


fold, process = topic, f"bench-process-{keys}"
verbs = {
    "begin": (lambda: None, lambda: None),
    "load": (lambda: send(generator.first(keys)), lambda: run(fold)),
    "load_process": (lambda: None, lambda: run(process)),
    "small": (lambda: updates(20_000), lambda: run(fold)),
    "medium": (lambda: updates(200_000), lambda: run(fold)),
    "large": (lambda: updates(2 * keys), lambda: run(fold)),
    "process": (lambda: (run(process), updates(20_000)), lambda: run(process)),
    "compact": (lambda: None, lambda: compaction.compact(context, topic, full=True)),
    "resolve": (lambda: None, resolve),
    "show": (lambda: None, show),
}
try:
    control.up(settings, only=("kafka", "spark"))
    admin = AdminClient({"bootstrap.servers": settings.kafka_address})
    admin.create_topics([NewTopic(topic, 4, 1, config={"retention.ms": "-1"})])[topic].result(30)
    context = open_context(settings)
    for line in sys.stdin:
        before, act = verbs[line.strip()]
        before()
        started = time.perf_counter()
        act()
        said.write(json.dumps({"seconds": round(time.perf_counter() - started, 4)}) + "\\n")
        said.flush()
finally:
    control.down(settings)
"""


def main(argv: list[str]) -> int:
    """Measures, prints the medians, and writes all rounds unless the run is a quick one."""
    (commit,) = argv
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as home:
        old = Path(home, "old")
        subprocess.run(["git", "worktree", "add", "--detach", str(old), commit], cwd=ROOT, check=True)
        (old / JARS.name).symlink_to(JARS)
        trees = dict[str, CommandedProcess]()
        try:
            for name, root in {"before": old, "after": ROOT}.items():
                trees[name] = CommandedProcess(name, ["-c", DRIVER, str(Path(home, name)), str(KEYS)], root)
            rows = list(_measured(trees))
        finally:
            for tree in trees.values():
                tree.close()
            subprocess.run(["git", "worktree", "remove", "--force", str(old)], cwd=ROOT, check=True)
    body = made_by(f"{COMMAND} {commit}", 0) | {"keys": KEYS, "medians": _medians(rows)}
    sys.stdout.write(json.dumps(body, indent=1) + "\n")
    if not QUICK:
        (FOLDER / "before-and-after.json").write_text(json.dumps(body | {"rows": rows}, indent=1) + "\n")
    return 0


def _measured(trees: dict[str, CommandedProcess]) -> Iterator[dict[str, Any]]:
    rounds = dict.fromkeys(FIRST, 1) | ({verb: 2 for verb in ROUNDS} if QUICK else ROUNDS)
    for verb, count in rounds.items():
        for n in range(count):
            for name in sorted(trees, reverse=n % 2 == 1):
                row = {"verb": verb, "round": n, "tree": name, **trees[name].tell(verb)}
                sys.stderr.write(json.dumps(row) + "\n")
                yield row


def _medians(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    found = {}
    for verb in dict.fromkeys(row["verb"] for row in rows if row["verb"] != "begin"):
        first = 0 if verb in FIRST else 1 if QUICK else UNCOUNTED.get(verb, 1)
        made = {
            tree: statistics.median(
                row["seconds"] for row in rows if (row["verb"], row["tree"]) == (verb, tree) and row["round"] >= first
            )
            for tree in ("before", "after")
        }
        found[verb] = {tree: round(seconds, 3) for tree, seconds in made.items()}
        found[verb]["ratio"] = round(made["after"] / made["before"], 2)
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
