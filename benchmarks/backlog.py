"""A backlog read by one run that is killed twice: `python -m benchmarks.backlog` writes backlog.json.

A topic is loaded, with one millisecond per fifty records. A process makes the checkpoints of one run, with the Spark
server's default memory. It is killed in the middle of its third checkpoint, and the Spark server in the middle of the
sixth; each time the same run is started again. The state must be numpy's.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import generator
from benchmarks.bench import create_topic
from benchmarks.facts import made_by
from benchmarks.peaks import Peaks
from benchmarks.report import FOLDER
from devstack import control
from tidemark.context import open_context
from tidemark.operations import checkpoints, reads, runs
from tidemark.ports import PlanRequest
from tidemark.settings import Settings, load_settings

QUICK = os.environ.get("BENCH") == "quick"
RECORDS, SEED = 1_000_000 if QUICK else 20_000_000, 20130101
KEYS, PIECE = RECORDS // 10, RECORDS // 10
TOPIC, NAME = "backlog", "backlog"
PER_MS = 50
KILLS = {"client": 2, "spark": 5}
"""The victims, and how many checkpoints are complete by then."""
PIPELINE = f"""
from dataclasses import replace
from benchmarks.pipelines import sized
from tidemark import KafkaSource

backlog = sized({KEYS})
backlog = replace(backlog, name="{NAME}", source=replace(backlog.source, topics="{TOPIC}"), max_records={PIECE})
"""


def main(argv: list[str]) -> int:
    """Measures, prints one JSON object, and writes it unless the run is a quick one."""
    if argv:
        return _client()
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as home:
        folder = Path(home) / "pipelines"
        folder.mkdir()
        (folder / "backlog.py").write_text(PIPELINE)
        settings = load_settings(home=home, pipelines=str(folder))
        try:
            found = _measured(settings, {**os.environ, "TIDEMARK_HOME": home, "TIDEMARK_PIPELINES": str(folder)})
        finally:
            control.down(settings)
    body = made_by("python -m benchmarks.backlog", SEED) | {"records": RECORDS, "keys": KEYS, **found}
    report = json.dumps(body, indent=2) + "\n"
    sys.stdout.write(report)
    if not QUICK:
        (FOLDER / "backlog.json").write_text(report)
    return 0


def _client() -> int:
    """Makes the checkpoints of the run that are left; prints its progress after each of them."""
    context = open_context()

    def tell(made: object) -> bool:
        sys.stdout.write(f"{runs.describe(context, made)}\n")  # type: ignore[arg-type]
        sys.stdout.flush()
        return False

    checkpoints.make_checkpoints(context, NAME, PlanRequest(origin="bench", run="bench/1"), is_last=tell)
    return 0


def _measured(settings: Settings, env: dict[str, str]) -> dict[str, Any]:
    batch = generator.uniform(KEYS, RECORDS, SEED)
    control.up(settings, only=("kafka",))
    create_topic(settings.kafka_address, TOPIC)
    generator.send(settings.kafka_address, TOPIC, _records(batch))
    control.up(settings, only=("kafka", "spark"))
    peaks = Peaks()
    seconds, told = 0.0, list[str]()
    with peaks:
        for victim, after in (*KILLS.items(), (None, 0)):
            started = time.perf_counter()
            told += _driven(settings, env, peaks, victim, after - len(told))
            seconds += time.perf_counter() - started
            control.up(settings, only=("kafka", "spark"))
    context = open_context(settings)
    made = list(reversed(list(context.coordinator(NAME).checkpoints())))
    _check(settings, batch)
    return {
        "seconds": round(seconds, 1),
        "records_per_second": round(RECORDS / seconds),
        "checkpoints": [{"records": c.sealed.facts.records, "attempt": c.sealed.attempt} for c in made],
        "covers": [c.plan.covers for c in made],
        "killed": dict(KILLS),
        "spark_driver_memory": settings.spark_driver_memory,
        "peak_mib": peaks.mib,
        "progress": told,
    }


def _driven(settings: Settings, env: dict[str, str], peaks: Peaks, victim: str | None, wait: int) -> list[str]:
    """Runs the client until it ends, or until the victim is killed in the middle of a checkpoint."""
    command = [sys.executable, "-m", "benchmarks.backlog", "client"]
    told: list[str] = []
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as client:
        peaks.watch("client", client.pid)
        server = next(s.pid for s in control.status(settings) if s.name == "spark")
        assert server is not None
        peaks.watch("spark", server)
        for line in client.stdout or ():
            if not line.startswith("chk-"):
                continue  # the log, of the server's death
            told.append(line.strip())
            sys.stderr.write(line)
            if victim is not None and len(told) == wait:
                time.sleep(2)
                os.kill(client.pid if victim == "client" else server, signal.SIGKILL)
                victim = None
    return told


def _records(batch: generator.Updates) -> Iterator[tuple[int, bytes | None, bytes | None, int]]:
    for n, (key, amount) in enumerate(zip(batch.keys.tolist(), batch.amounts.tolist(), strict=True)):
        value = f'{{"key":"{generator.key_text(key)}","amount":{amount},"at":"2013-01-01T00:00:00Z"}}'
        yield key % 4, None, value.encode(), generator.START_MS + n // PER_MS


def _check(settings: Settings, batch: generator.Updates) -> None:
    """Compares every key's state with numpy's; a wrong row voids the run."""
    counts, sums = generator.expected(iter([batch]), KEYS)
    table = reads.read_state(open_context(settings), NAME, "totals")
    found = dict(
        zip(
            table["key"].to_pylist(),
            zip(table["updates"].to_pylist(), table["amount"].to_pylist(), strict=True),
            strict=True,
        )
    )
    wanted = {generator.key_text(n): (int(counts[n]), int(sums[n])) for n in np.flatnonzero(counts).tolist()}
    if found != wanted:
        raise SystemExit("the state differs from numpy's: this run is void")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
