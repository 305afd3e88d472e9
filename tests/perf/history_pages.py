"""What a page of the Airflow plugin costs at many checkpoints: `python -m tests.perf.history_pages [COUNT]`.

A checkpoint is made by the real coordinator, then copied under other ids, with plan and id record, so that there are
as many as asked for; one in fifty failed instead. A new process then answers until all manifests are read (the first
answers after a start of the API server), and once more. Prints one JSON object; the figures are in docs/benchmarks.
"""

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tests.airflow.pipelines.trips import Bus, Trip
from tests.cli.disk_line import DiskLine
from tidemark import Fold, KafkaSource, Pipeline
from tidemark.coordinator.records.objects import encoded, key_of
from tidemark.model import keys
from tidemark.model.checkpoint import Checkpoint
from tidemark.model.failure import FailureReason
from tidemark.model.plan import Slot
from tidemark.model.records import AbortRecord, Failure, IdRecord
from tidemark.settings import load_settings
from tidemark.wiring import open_runtime
from tidemark.wiring.pages import Pages
from tidemark.wiring.pages.lines import HistoryQuery

TRIPS = Pipeline(
    name="trips",
    source=KafkaSource("trips", Trip, event_time="ended_at"),
    operators=[Fold(f"buses-{n}", key_by="bus", state=Bus) for n in range(5)],
)
"""Five operators: manifests are as large as those of the flights."""
COUNT = 5000
ROUNDS = 9
FAILURE = Failure(reason=FailureReason.ENGINE_ERROR, message="Spark failed", next="run it again.")
MINUTE = 60_000


def main() -> int:
    """Measures and prints."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else COUNT
    with tempfile.TemporaryDirectory(prefix="tidemark-pages-") as folder:
        grow(Path(folder), count)
        os.environ["TIDEMARK_WAREHOUSE"] = folder
        pages = Pages(open_runtime(load_settings(root=folder)))
        first: list[float] = []
        told = answered(lambda: pages.overview("trips", HistoryQuery()), first)
        while told["indexed"]["read"] < told["indexed"]["of"]:
            told = answered(lambda: pages.overview("trips", HistoryQuery()), first)
        middle = {name: timed(call) for name, call in calls(pages, count).items()}
    facts = {
        "checkpoints": count,
        "cores": os.cpu_count(),
        "first_answers": {"number": len(first), "longest_ms": round(max(first)), "all_ms": round(sum(first))},
        "median_ms": middle,
    }
    sys.stdout.write(json.dumps(facts, indent=2) + "\n")
    return 0


def calls(pages: Pages, count: int) -> dict[str, Callable[[], object]]:
    """What a page asks for."""
    return {
        "overview": lambda: pages.overview("trips", HistoryQuery()),
        "last page of the history": lambda: pages.overview("trips", HistoryQuery(offset=count - 25)),
        "search": lambda: pages.overview("trips", HistoryQuery(text="4321")),
        "series of 1000": lambda: pages.series("trips", 1000),
        "timelines": lambda: pages.timelines("trips"),
        "details": lambda: pages.details("trips", count - 1),
        "graph": lambda: pages.graph("trips", count - 1),
    }


def timed(call: Callable[[], object]) -> int:
    """Median of some calls in milliseconds, after one that does not count."""
    call()
    spent: list[float] = []
    for _ in range(ROUNDS):
        answered(call, spent)
    return round(statistics.median(spent))


def answered(call: Callable[[], object], spent: list[float]) -> dict[str, object]:
    """What a call returns; adds its milliseconds."""
    begun = time.perf_counter()
    told = call()
    spent.append((time.perf_counter() - begun) * 1000)
    return told if isinstance(told, dict) else {}


def grow(root: Path, count: int) -> None:
    """A warehouse with so many checkpoints."""
    line = DiskLine(root, TRIPS, "trips", partitions=4)
    values = (json.dumps({"bus": f"b{n}", "miles": n, "ended_at": "2024-05-01T00:00:00Z"}) for n in range(40))
    line.send([(n % 4, value.encode(), n) for n, value in enumerate(values)])
    made = line.checkpoint()
    sequence, parent, k = 2, 1, 1
    for number in range(2, count + 1):
        slot = Slot(timeline="t1", sequence=sequence, k=k)
        at = made.plan.planned_at_ms + number * MINUTE
        plan = replace(made.plan, id=number, slot=slot, parent=parent, planned_at_ms=at)
        write(root / "trips", IdRecord(id=number, slot=slot, write_id="0" * 32))
        write(root / "trips", plan)
        if number % 50 == 0:
            failed = AbortRecord(id=number, slot=slot, attempts=1, failure=FAILURE, at_ms=at, write_id="0" * 32)
            write(root / "trips", failed)
            k = 2
            continue
        write(root / "trips", Checkpoint(plan=plan, sealed=made.sealed, covered_until_ms=None))
        sequence, parent, k = sequence + 1, number, 1


def write(folder: Path, value: object) -> None:
    """An object under its own key, without the fsync of the store."""
    key = key_of(value)
    assert key is not None and not key.startswith(keys.FIRST_TIMELINE)
    path = folder / key
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encoded(value))


if __name__ == "__main__":
    sys.exit(main())
