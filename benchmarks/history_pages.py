"""Cost of the Airflow plugin's pages at many checkpoints: `python -m benchmarks.history_pages [COUNT]`.

The benchmark copies one real checkpoint into a long history (`long_history`). A new context then answers until it has
read all manifests, like an API server after its start; after that, each page is timed. The figures are printed as one
JSON object, and with the default count written to docs/benchmarks.
"""

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from benchmarks.long_history import LongHistory
from benchmarks.report import FOLDER
from tidemark.context import Context, open_context
from tidemark.model.checkpoint.codec import body_of
from tidemark.settings import load_settings
from tidemark.web import details, graphs, overview
from tidemark.web.history_lines import HistoryQuery

T = TypeVar("T")

COUNT = 5000
ROUNDS = 9


def main() -> int:
    """Measures the pages and prints the figures as JSON."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else COUNT
    with tempfile.TemporaryDirectory(prefix="tidemark-pages-") as folder:
        LongHistory(Path(folder)).grow(count)
        os.environ["TIDEMARK_WAREHOUSE"] = folder
        pages = open_context(load_settings(root=folder))
        first: list[float] = []
        told = answered(lambda: body_of(overview.get_overview(pages, "trips", HistoryQuery())), first)
        while told["indexed"]["read"] < told["indexed"]["of"]:
            told = answered(lambda: body_of(overview.get_overview(pages, "trips", HistoryQuery())), first)
        middle = {name: timed(call) for name, call in calls(pages, count).items()}
    facts = {
        "checkpoints": count,
        "cores": os.cpu_count(),
        "first_answers": {"number": len(first), "longest_ms": round(max(first)), "all_ms": round(sum(first))},
        "median_ms": middle,
    }
    report = json.dumps(facts, indent=2) + "\n"
    sys.stdout.write(report)
    if count == COUNT:
        (FOLDER / "history-pages.json").write_text(report)
    return 0


def calls(pages: Context, count: int) -> dict[str, Callable[[], object]]:
    """The calls that answer the plugin's pages, by name."""
    return {
        "overview": lambda: body_of(overview.get_overview(pages, "trips", HistoryQuery())),
        "last page of the history": lambda: body_of(
            overview.get_overview(pages, "trips", HistoryQuery(offset=count - 25))
        ),
        "search": lambda: body_of(overview.get_overview(pages, "trips", HistoryQuery(text="4321"))),
        "series of 1000": lambda: body_of(overview.list_points(pages, "trips", 1000)),
        "timelines": lambda: body_of(overview.list_timelines(pages, "trips")),
        "details": lambda: body_of(details.get_details(pages, "trips", count - 1)),
        "graph": lambda: body_of(graphs.build_graph(pages, "trips", count - 1)),
    }


def timed(call: Callable[[], object]) -> int:
    """The median milliseconds of several calls, after one that does not count."""
    call()
    spent: list[float] = []
    for _ in range(ROUNDS):
        answered(call, spent)
    return round(statistics.median(spent))


def answered(call: Callable[[], T], spent: list[float]) -> T:
    """Returns the result of a call and appends its milliseconds to `spent`."""
    begun = time.perf_counter()
    told = call()
    spent.append((time.perf_counter() - begun) * 1000)
    return told


if __name__ == "__main__":
    sys.exit(main())
