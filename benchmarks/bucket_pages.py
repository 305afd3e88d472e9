"""What answers of the pages take at 5,000 checkpoints in a bucket: `python -m benchmarks.bucket_pages [COUNT]`.

A long history (`long_history`) is sent to MinIO, behind a proxy in which each request waits 50 ms. Another process
answers as the API server does, without HTTP: for each view once with a context that has read nothing, and three times
more, while the history is still being read. It needs `make setup-minio`. With the default count it writes
docs/benchmarks/bucket-pages.json.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.facts import made_by
from benchmarks.long_history import LongHistory
from benchmarks.object_store import waits
from benchmarks.report import FOLDER
from tests.support.disk_context import DiskContext
from tests.support.s3 import MINIO, S3Server, S3Servers
from tidemark.context import Context, open_context
from tidemark.declare.retention import Retention
from tidemark.model.retention.savepoint import SavepointRequest
from tidemark.operations import retention, savepoints
from tidemark.settings import load_settings
from tidemark.web import columns, comparison, details, graphs, overview, retention_calendar
from tidemark.web.comparison import ComparisonQuery
from tidemark.web.history_lines import HistoryQuery
from tidemark.web.retention_calendar import WhatIf

COUNT, SEED, LATER, WAIT_MS = 5000, 20130101, 3, 50
AT_ONCE = 16
"""Objects that are sent at a time."""
ANSWERS = "answers"


def main() -> int:
    """Measures, prints the figures as JSON, and writes them."""
    if sys.argv[1:2] == [ANSWERS]:
        sys.stdout.write(json.dumps(measure(int(sys.argv[2]), sys.argv[3])))
        return 0
    count = int(sys.argv[1]) if len(sys.argv) > 1 else COUNT
    with tempfile.TemporaryDirectory(prefix="tidemark-pages-") as folder, S3Servers(Path(folder, "stores")) as servers:
        newest = write_history(Path(folder, "warehouse"), count)
        server = servers.server(MINIO)
        send(server, Path(folder, "warehouse"))
        server.proxy.rule = waits(WAIT_MS / 1000)
        command = [sys.executable, "-m", "benchmarks.bucket_pages", ANSWERS, str(newest), folder]
        done = subprocess.run(command, env=os.environ | server.variables, stdout=subprocess.PIPE, text=True, check=True)
    load = round(os.getloadavg()[0], 1)
    facts = {**made_by("PYTHONPATH=include:. python -m benchmarks.bucket_pages", SEED), "checkpoints": count}
    report = json.dumps({**facts, "wait_ms": WAIT_MS, "load": load, "answers_ms": json.loads(done.stdout)}, indent=1)
    sys.stdout.write(report + "\n")
    if count == COUNT:
        (FOLDER / "bucket-pages.json").write_text(report + "\n")
    return 0


def write_history(warehouse: Path, count: int) -> int:
    """Writes the history, with a savepoint and a rule of retention. Returns the newest completed id."""
    history = LongHistory(warehouse)
    history.grow(count)
    settings = load_settings(root=str(warehouse.parent), warehouse=str(warehouse))
    context = DiskContext(history.line, settings)
    request = SavepointRequest(name="kept", owner="me", origin="bench", checkpoint=history.newest.id, note="")
    savepoints.open_savepoints(context, "trips").create(request)
    retention.declare_rule(context, "trips", Retention.keep_last(1000))
    return history.newest.id


def send(server: S3Server, warehouse: Path) -> None:
    """Copies a warehouse to a new bucket."""
    server.make_bucket("first")

    def put(file: Path) -> None:
        key = f"house/{file.relative_to(warehouse).as_posix()}"
        server.client.put_object(Bucket="first", Key=key, Body=file.read_bytes())

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(put, (file for file in warehouse.rglob("*") if file.is_file())))


def measure(newest: int, folder: str) -> dict[str, dict[str, int]]:
    """Milliseconds per answer: of the first one of a context, and the median of later ones."""
    found = {}
    for name, answer in answers(newest).items():
        home = tempfile.mkdtemp(dir=folder)
        context = open_context(load_settings(root=home, home=home, warehouse="s3://first/house"))
        spent = []
        for _ in range(1 + LATER):
            begun = time.perf_counter()
            answer(context)
            spent.append(round((time.perf_counter() - begun) * 1000))
        found[name] = {"first": spent[0], "later": round(statistics.median(spent[1:]))}
    return found


def answers(newest: int) -> dict[str, Callable[[Context], object]]:
    """The answers with which views open, by the name of the view."""
    return {
        "warm-up of the process": lambda c: details.get_details(c, "trips", newest),
        "overview": lambda c: overview.get_overview(c, "trips", HistoryQuery(limit=0), scope="live"),
        "charts": lambda c: overview.list_points(c, "trips", 200),
        "history": lambda c: overview.get_overview(c, "trips", HistoryQuery()),
        "details of the newest checkpoint": lambda c: details.get_details(c, "trips", newest),
        "lineage of an old checkpoint": lambda c: graphs.build_graph(c, "trips", 17),
        "compare": lambda c: comparison.compare_restore_points(c, "trips", ComparisonQuery(left=None)),
        "timelines": lambda c: overview.list_timelines(c, "trips"),
        "retention": lambda c: retention_calendar.get_calendar(c, "trips", WhatIf()),
        "columns": lambda c: columns.recorded_columns(c, "trips", None),
        "configuration": lambda c: details.get_config(c, "trips"),
    }


if __name__ == "__main__":
    sys.exit(main())
