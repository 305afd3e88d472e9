"""A checkpoint in a bucket next to one on a local disk: seconds and requests, with 0 and 20 ms per request.

One Connect server runs the same fold of 20,000 updates for three warehouses in turn: a folder, and two buckets of
MinIO behind a proxy, in which each request waits. Requests are counted by their method and the part of the warehouse.
`PYTHONPATH=include:. python -m benchmarks.bucket` writes docs/benchmarks/bucket.json (`make setup-minio setup-s3`).
"""

import json
import os
import re
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks import generator
from benchmarks.bench import create_topic
from benchmarks.facts import made_by
from benchmarks.object_store import waits
from benchmarks.peers.places import ROOT
from benchmarks.report import FOLDER
from benchmarks.workload import Workload
from devstack import control
from tests.support.s3 import MINIO, S3Server, S3Servers
from tidemark.context import Context, open_context
from tidemark.operations import checkpoints
from tidemark.ports import PlanRequest
from tidemark.settings import load_settings

QUICK = os.environ.get("BENCH") == "quick"
KEYS, UPDATES, SEED, TOPIC = 1_000_000, 20_000, 20130101, "large"
WARM, ROUNDS = (1, 2) if QUICK else (10, 20)
WAITS_MS = (0, 20)
_PARTS = (
    ("_delta_log", r"/_delta_log"),
    ("data", r"\.parquet|/(runs|base)/"),
    ("coordinator", r""),
)


def main() -> int:
    """Measures, prints one JSON object, and writes it unless the run is a quick one."""
    pipelines = str(ROOT / "benchmarks" / "peers" / "pipelines")
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as home, S3Servers(Path(home, "stores")) as servers:
        server = servers.server(MINIO)
        settings = load_settings(home=home, pipelines=pipelines)
        with mock.patch.dict(os.environ, server.variables):
            control.up(settings, only=("kafka", "spark"))
            try:
                create_topic(settings.kafka_address, TOPIC)
                places = {"folder": load_settings(home=f"{home}/0", pipelines=pipelines, **_services(settings))}
                for n, wait in enumerate(WAITS_MS, start=1):
                    bucket = server.make_bucket(f"bench-{n}")
                    places[f"bucket, {wait} ms"] = load_settings(
                        home=f"{home}/{n}",
                        pipelines=pipelines,
                        warehouse=f"s3://{bucket.name}/house",
                        **_services(settings),
                    )
                rows = list(_measured({name: open_context(place) for name, place in places.items()}, server, settings))
            finally:
                control.down(settings)
    body = made_by("PYTHONPATH=include:. python -m benchmarks.bucket", SEED) | {"updates": UPDATES, **_medians(rows)}
    report = json.dumps(body | {"rows": rows}, indent=1) + "\n"
    sys.stdout.write(json.dumps(body, indent=1) + "\n")
    if not QUICK:
        (FOLDER / "bucket.json").write_text(report)
    return 0


def _services(settings: Any) -> dict[str, str]:
    return {"kafka_bootstrap": settings.kafka_address, "spark": settings.spark_address}


def _measured(contexts: dict[str, Context], server: S3Server, settings: Any) -> Iterator[dict[str, Any]]:
    workload = Workload(KEYS, UPDATES, SEED, new=0, deleted=0)
    names = [*contexts]
    for n in range(-WARM, ROUNDS):
        generator.produce(settings.kafka_address, TOPIC, workload.batch(n + WARM, KEYS))
        for name in names[n % len(names) :] + names[: n % len(names)]:
            wait = int(found[0]) / 1000 if (found := re.findall(r"(\d+) ms", name)) else 0
            server.proxy.rule = waits(wait)
            server.proxy.requests.clear()
            started = time.perf_counter()
            made = checkpoints.run_once(contexts[name], "large-fold", PlanRequest(origin="bench")).checkpoint
            seconds = time.perf_counter() - started
            assert made is not None
            requests = Counter(_part(method, path) for method, path in server.proxy.requests)
            row = {"place": name, "round": n, "seconds": round(seconds, 3), "requests": dict(requests)}
            row |= {"phases_ms": dict(made.sealed.timings_ms)}
            sys.stderr.write(json.dumps(row) + "\n")
            if n >= 0:
                yield row
    server.proxy.reset()


def _part(method: str, path: str) -> str:
    part = next(name for name, pattern in _PARTS if re.search(pattern, path.replace("%2F", "/")))
    return f"{part} {method if 'list-type' not in path else 'LIST'}"


def _medians(rows: list[dict[str, Any]]) -> dict[str, Any]:
    found = {}
    local = statistics.median(r["seconds"] for r in rows if r["place"] == "folder")
    for place in dict.fromkeys(r["place"] for r in rows):
        mine = [r for r in rows if r["place"] == place]
        seconds = statistics.median(r["seconds"] for r in mine)
        counts = [sum(r["requests"].values()) for r in mine]
        found[place] = {
            "seconds": round(seconds, 3),
            "to_folder": round(seconds / local, 2),
            "requests": statistics.median(counts),
            "most_requests": max(counts),
        }
    return {"medians": found}


if __name__ == "__main__":
    sys.exit(main())
