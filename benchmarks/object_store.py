"""What a round trip to the store costs: requests and seconds of a checkpoint and of answers, over MinIO.

Each request waits in the proxy for a fixed time, as in a region of a cloud far away. The pipeline is small, with 31
checkpoints without any compaction, and its engine a twin: so the figures are those of coordinator, tables and
readers, not of Spark. Run it with `python -m benchmarks.object_store`; it writes docs/benchmarks/object_store.json.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest import mock

from benchmarks.facts import made_by
from tests.support.cli import Command
from tests.support.disk import DiskPipeline
from tests.support.disk_context import DiskContext
from tests.support.s3 import MINIO, S3Servers
from tests.support.s3_proxy import S3Request
from tests.support.sales import Sales
from tests.support.sales_pipeline import DECLARATION
from tidemark.operations import reads, verification
from tidemark.readers.state_reader import read_state
from tidemark.settings import load_settings
from tidemark.web import details, overview
from tidemark.web.history_lines import HistoryQuery

RESULT = Path(__file__).resolve().parents[1] / "docs" / "benchmarks" / "object_store.json"
CHECKPOINTS, SEED = 31, 20130101
WAITS_MS = (0, 50)
"""Milliseconds that each request waits."""


def measure(line: DiskPipeline, sales: Sales, requests: list[tuple[str, str]]) -> dict[str, dict[str, float]]:
    """Requests and seconds per verb."""
    context = DiskContext(line, load_settings())
    query = HistoryQuery()

    def checkpoint() -> None:
        line.send(sales.more(20))
        line.checkpoint()

    def show() -> None:
        newest = next(line.coordinator.checkpoints())
        read_state(line.warehouse, newest.plan.schemas["accounts"], newest.handles["accounts"], newest.now)

    verbs: dict[str, Callable[[], object]] = {
        "checkpoint": checkpoint,
        "overview, first": lambda: overview.get_overview(context, "till", query),
        "overview, polled": lambda: overview.get_overview(context, "till", query),
        "details": lambda: details.get_details(context, "till", CHECKPOINTS),
        "checkpoint list": lambda: reads.list_checkpoints(DiskContext(line, load_settings()), "till"),
        "state show": show,
        "verify, first": lambda: verification.verify(DiskContext(line, load_settings()), "till"),
        "verify": lambda: verification.verify(DiskContext(line, load_settings()), "till"),
    }
    measured = {}
    for name, verb in verbs.items():
        requests.clear()
        began = time.monotonic()
        verb()
        measured[name] = {"requests": len(requests), "seconds": round(time.monotonic() - began, 2)}
    return measured


def main() -> int:
    """Measures and writes the result."""
    found: dict[str, object] = {}
    for wait in WAITS_MS:
        with tempfile.TemporaryDirectory() as root, S3Servers(Path(root, "stores")) as servers:
            server = servers.server(MINIO)
            bucket, opened = server.make_bucket("bench"), servers.folder(MINIO)
            place = replace(opened.place, bucket=bucket.name)
            tidemark = Command(Path(root, "till"), "127.0.0.1:1", "sc://127.0.0.1:1")
            tidemark.declare(DECLARATION, topic="sales")
            there = {"TIDEMARK_WAREHOUSE": f"s3://{bucket.name}/house", **server.variables}
            with mock.patch.dict(os.environ, tidemark.environment(**there)):
                folder = replace(opened, access=replace(opened.access, place=place))
                line = DiskPipeline(tidemark.warehouse, tidemark.context.pipeline("till"), "sales", bucket=folder)
                sales = Sales(SEED)
                for _ in range(CHECKPOINTS):
                    line.send(sales.more(20))
                    line.checkpoint()
                server.proxy.rule = waits(wait / 1000)
                found[f"{wait} ms"] = measure(line, sales, server.proxy.requests)
                server.proxy.reset()
    result = {**made_by("python -m benchmarks.object_store", SEED), "checkpoints": CHECKPOINTS, "per_request": found}
    RESULT.write_text(json.dumps(result, indent=2) + "\n")
    sys.stderr.write(f"{json.dumps(found, indent=2)}\n")
    return 0


def waits(seconds: float) -> Callable[[S3Request], None]:
    """Returns the rule of a proxy that delays each request."""
    return lambda request: time.sleep(seconds)


if __name__ == "__main__":
    sys.exit(main())
