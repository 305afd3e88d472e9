"""Cost of more checkpoints, partitions and pipelines: `python -m benchmarks.scale` writes docs/benchmarks/scale.

Each size is measured in a separate process, over a history copied from one real checkpoint. Twins replace Kafka and
Spark; all other code is the product's. `python -m benchmarks.scale pages` measures one dimension again and keeps the
figures of the others. `BENCH=quick` uses small sizes and writes separate files that Git ignores. Each figure is the
best of some tries, in seconds and in CPU seconds, because other work may run on the machine.
"""

import io
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import long_history
from benchmarks.history_pages import calls
from benchmarks.long_history import LongHistory
from benchmarks.scale_page import page
from tidemark.cli.checkpoint import list_checkpoints
from tidemark.context import Context, open_context
from tidemark.coordinator.records import objects
from tidemark.model.checkpoint.codec import body_of
from tidemark.operations import retention as retention_operations
from tidemark.ports import PlanRequest
from tidemark.settings import load_settings
from tidemark.web import overview
from tidemark.web.history_lines import HistoryQuery

Row = dict[str, Any]
ROOT = Path(__file__).resolve().parents[1]
QUICK = os.environ.get("BENCH") == "quick"
SIZES: Mapping[str, tuple[int, ...]] = {
    "manifests": (200, 1_000) if QUICK else (1_000, 10_000, 100_000),
    "pages": (200, 1_000) if QUICK else (1_000, 10_000, 100_000),
    "partitions": (10, 100) if QUICK else (10, 100, 1_000),
    "pipelines": (5, 20) if QUICK else (10, 50, 200),
}
RULE, TRIES = "keep_last(30)", 3
SHORT = 200
"""The number of checkpoints where the length of the history does not matter."""


def main() -> int:
    """Measures all sizes, or those of one dimension, and writes the report; for a single size, prints its row."""
    if len(sys.argv) > 2:
        with tempfile.TemporaryDirectory(prefix="tidemark-scale-") as folder:
            sys.stdout.write(json.dumps(_measured(sys.argv[1], int(sys.argv[2]), Path(folder))) + "\n")
        return 0
    facts: Row = {"quick": QUICK, "cores": os.cpu_count(), "python": platform.python_version()}
    results, written = ROOT / "docs" / "benchmarks", "scale-quick" if QUICK else "scale"
    data, wanted = results / f"{written}.json", sys.argv[1:] or list(SIZES)
    known: dict[str, list[Row]] = json.loads(data.read_text())["rows"] if sys.argv[1:] else {}
    known |= {name: [_apart(name, size) for size in SIZES[name]] for name in wanted}
    rows = {name: known[name] for name in SIZES if name in known}
    data.write_text(json.dumps({"facts": facts, "rows": rows}, indent=1) + "\n")
    (results / f"{written}.md").write_text(page(data.name, facts, rows))
    return 0


def _apart(name: str, size: int) -> Row:
    """Measures a row in a separate process, and adds the load of the machine before and after."""
    before, begun = os.getloadavg()[0], time.perf_counter()
    command = [sys.executable, "-m", "benchmarks.scale", name, str(size)]
    told = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT)
    row: Row = json.loads(told.stdout)
    row |= {"load": [round(before, 1), round(os.getloadavg()[0], 1)], "all_s": round(time.perf_counter() - begun)}
    sys.stderr.write(json.dumps(row) + "\n")
    return row


def _measured(name: str, size: int, folder: Path) -> Row:
    os.environ |= {"TIDEMARK_ROOT": str(folder), "TIDEMARK_WAREHOUSE": str(folder / "warehouse")}
    os.environ |= {"TIDEMARK_HOME": str(folder / "home"), "AIRFLOW_HOME": str(folder / "airflow")}
    measures = {"manifests": _manifests, "pages": _history, "partitions": _partitions, "pipelines": _pipelines}
    found = measures[name](size, folder)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return {"size": size, **found, "peak_mb": peak}


def _manifests(count: int, folder: Path) -> Row:
    """Measures a pipeline with a long history."""
    history = LongHistory(folder / "warehouse")
    history.grow(count)
    row = {
        **_planning(history, folder),
        "list": cost(lambda: listed("trips")),
        "retention_cold": cost(lambda: retention(), tries=1, before=lambda: forget(folder)),
        "retention_again": cost(lambda: retention()),
        "retention_one_more": cost(lambda: retention(), before=lambda: one_more(history)),
    }
    sizes = [p.stat().st_size for p in (folder / "warehouse" / "trips" / "timelines").rglob("*.json")]
    index = sum(p.stat().st_size for p in (folder / "home").rglob("*") if p.is_file())
    return row | {"manifest_bytes": sum(sizes) // len(sizes), "index_bytes": index}


def _history(count: int, folder: Path) -> Row:
    """Measures the API server's pages over such a history."""
    LongHistory(folder / "warehouse").grow(count)
    return _pages("trips", count)


def _partitions(count: int, folder: Path) -> Row:
    """Measures a topic with many partitions."""
    history = LongHistory(folder / "warehouse", partitions=count)
    history.grow(SHORT)
    newest = history.root / "trips" / "timelines" / "t1"
    size = max(path.stat().st_size for path in newest.iterdir())
    return {**_planning(history, folder), **_pages("trips", SHORT), "manifest_bytes": size}


def _pipelines(count: int, folder: Path) -> Row:
    """Measures a warehouse with many pipelines, each declared in a file as long as that of the flights."""
    declared = folder / "include" / "pipelines"
    declared.mkdir(parents=True)
    text = (ROOT / "include" / "pipelines" / "flights.py").read_text()
    assert text.count('name="flights"') == 1, "the flights' file has changed"
    names = [f"p{n}" for n in range(count)]
    for name in names:
        LongHistory(
            folder / "warehouse",
            pipeline=replace(long_history.TRIPS, name=name, operators=long_history.TRIPS.operators[:1]),
        ).grow(30)
        (declared / f"{name}.py").write_text(text.replace('name="flights"', f'name="{name}"'))
    context = open_context()
    pages = context
    first = cost(lambda: context.pipeline(names[-1]), tries=1)
    return {
        "find_first": first,
        "find_again": cost(lambda: context.pipeline(names[-1])),
        "names": cost(pages.warehouse.list_pipelines),
        "all_overviews": cost(
            lambda: [body_of(overview.get_overview(pages, name, HistoryQuery())) for name in names], tries=1
        ),
        "overview": cost(lambda: body_of(overview.get_overview(pages, names[-1], HistoryQuery()))),
        "dags": _dags(context, names),
    }


def _dags(context: Context, names: list[str]) -> Row:
    """Times the creation of a DAG per pipeline in one process, without the import of Airflow."""
    os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"
    from tidemark.airflow import checkpoint_dag

    declared = [context.pipeline(name) for name in names]
    return cost(lambda: [checkpoint_dag(pipeline, schedule="@daily") for pipeline in declared], tries=1)


def _planning(history: LongHistory, folder: Path) -> Row:
    """Times the next plan in new contexts, first on a host without an index, then on a host that has one."""

    def plan() -> None:
        opened = open_context(load_settings()).coordinator("trips")
        line = history.line
        replace(opened, log=line.log, clock=line.clock).trigger(long_history.TRIPS, PlanRequest(origin="test"))

    def one_more_unknown() -> None:
        one_more(history)
        forget(folder)

    cold = cost(plan, before=one_more_unknown)
    return {"plan_cold": cold, "plan": cost(plan, before=lambda: one_more(history))}


def _pages(name: str, count: int) -> Row:
    """Times the API server's answers after its start until it has read the history, and its pages after that."""
    objects.decode.cache_clear()
    pages = open_context()

    spent: list[Row] = []

    def answered() -> bool:
        told: Row = {}
        spent.append(
            cost(lambda: told.update(body_of(overview.get_overview(pages, name, HistoryQuery()))["indexed"]), tries=1)
        )
        return bool(told["read"] == told["of"])

    while not answered():
        pass
    every = {unit: round(sum(each[unit] for each in spent), 4) for unit in spent[0]}
    longest = max(spent, key=lambda each: float(each["cpu_s"]))
    told = {"pages_first": spent[0], "pages_longest": longest, "pages_read": every, "pages_answers": len(spent)}
    wanted = ("overview", "search", "timelines", "details", "graph")
    found = calls(pages, count)
    return told | {f"page_{each}": cost(found[each]) for each in wanted}


def one_more(history: LongHistory) -> None:
    """Completes one more checkpoint, and sends records for the next one."""
    history.send()
    history.checkpoint()
    history.send()


def listed(name: str) -> None:
    """Runs `tidemark checkpoint list` without starting a new Python."""
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        list_checkpoints(name, limit=50, as_json=True)


def retention() -> None:
    """Plans a sweep like a task that has read nothing yet."""
    objects.decode.cache_clear()
    retention_operations.plan_sweep(open_context(), "trips", RULE)


def forget(folder: Path) -> None:
    """Deletes the host's index of the warehouse and clears the cache of decoded objects."""
    objects.decode.cache_clear()
    shutil.rmtree(folder / "home", ignore_errors=True)


def cost(call: Callable[[], object], tries: int = TRIES, before: Callable[[], object] = lambda: None) -> Row:
    """The fewest seconds of some tries, and the fewest CPU seconds."""
    spent: list[tuple[float, float]] = []
    for _ in range(tries):
        before()
        begun, used = time.perf_counter(), time.process_time()
        call()
        spent.append((time.perf_counter() - begun, time.process_time() - used))
    found = {"s": round(min(s for s, _ in spent), 4), "cpu_s": round(min(cpu for _, cpu in spent), 4)}
    sys.stderr.write(f"{json.dumps(found)}\n")
    return found


if __name__ == "__main__":
    sys.exit(main())
