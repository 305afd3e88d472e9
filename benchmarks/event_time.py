"""Cost of windows and timers: `PYTHONPATH=include:. python -m benchmarks.event_time` writes event-time.json.

Four pipelines read one topic: a fold and a process, each without and with a window or timers of event time. The first
checkpoint opens a window, or sets a timer, for each of a million keys, in a hundred hours. Rounds of 20,000 updates
follow, one checkpoint per pipeline and round. Every other round moves the watermark by an hour, so the windows of one
hour close and its timers fire. Due compactions run after each checkpoint, and their seconds count.
"""

import json
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import generator
from benchmarks.bench import create_topic
from benchmarks.facts import made_by
from benchmarks.report import FOLDER
from devstack import control
from tidemark.context import Context, open_context
from tidemark.operations import checkpoints, compaction
from tidemark.ports import PlanRequest
from tidemark.settings import Settings, load_settings

QUICK = os.environ.get("BENCH") == "quick"
KEYS = 20_000 if QUICK else 1_000_000
UPDATES, HOURS, SEED = 20_000, 100, 20130101
ROUNDS = 4 if QUICK else 24
TOPIC = "events"
NAMES = ("fold", "windows", "process", "timers")
START = datetime(2024, 1, 1, tzinfo=UTC)
COMMAND = "PYTHONPATH=include:. python -m benchmarks.event_time"
PIPELINES = f"""
from datetime import timedelta

from benchmarks.pipelines import Remembered, Totals, Update, remember
from tidemark import Fold, KafkaSource, Pipeline, Process, Tumbling, Watermark

HOUR = timedelta(hours=1)
source = KafkaSource("{TOPIC}", Update, event_time="at", watermark=Watermark(delay="{HOURS}h"))


def wait(key, updates, kept, *, timers):
    for update in updates:
        kept.updates += 1
        kept.amount += update.amount
        timers.set(f"hour {{update.at:%d %H}}", update.at + HOUR)


def expire(key, name, at, kept):
    kept.amount = 0


def of(name, operator):
    return Pipeline(name=name, source=source, operators=[operator])


fold = of("fold", Fold("all", key_by="key", state=Totals))
windows = of("windows", Fold("all", key_by="key", state=Totals, window=Tumbling("1h")))
process = of("process", Process("all", key_by="key", state=Remembered, function=remember))
timers = of("timers", Process("all", key_by="key", state=Remembered, function=wait, on_timer=expire))
"""


def main() -> int:
    """Measures, prints one JSON object, and writes it unless the run is a quick one."""
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as home:
        folder = Path(home) / "pipelines"
        folder.mkdir()
        (folder / "event_time.py").write_text(PIPELINES)
        settings = load_settings(home=home, pipelines=str(folder))
        try:
            control.up(settings, only=("kafka", "spark"))
            rows = list(_measured(open_context(settings), settings))
        finally:
            control.down(settings)
    facts = made_by(COMMAND, SEED) | {"keys": KEYS, "updates": UPDATES, "rounds": ROUNDS}
    report = json.dumps(facts | _told(rows) | {"rows": rows}, indent=2) + "\n"
    sys.stdout.write(report)
    if not QUICK:
        (FOLDER / "event-time.json").write_text(report)
    return 0


def _measured(context: Context, settings: Settings) -> Iterator[dict[str, Any]]:
    create_topic(settings.kafka_address, TOPIC)
    numbers = np.arange(KEYS)
    send(settings, TOPIC, numbers, numbers % HOURS)
    for name in NAMES:
        yield checkpoint(context, name, "load")
    chance, hour = np.random.default_rng(SEED), HOURS - 1
    for n in range(ROUNDS):
        # Two hours pass before the first windows close; those rounds warm up.
        kind = "warm" if n < 4 else "still" if n % 2 else "due"
        hour += 1 - n % 2
        send(settings, TOPIC, chance.integers(0, KEYS, UPDATES), np.full(UPDATES, hour))
        for name in NAMES:
            yield checkpoint(context, name, kind)


def send(settings: Settings, topic: str, keys: np.ndarray, hours: np.ndarray) -> None:
    """Sends an update of each key, at an hour after `START`."""

    def records() -> Iterator[tuple[int, None, bytes, int]]:
        for number, hour in zip(keys.tolist(), hours.tolist(), strict=True):
            at = START + timedelta(hours=hour)
            value = f'{{"key":"{generator.key_text(number)}","amount":1,"at":"{at.isoformat()}"}}'
            yield number % 4, None, value.encode(), int(at.timestamp() * 1000)

    generator.send(settings.kafka_address, topic, records())


def checkpoint(context: Context, name: str, kind: str) -> dict[str, Any]:
    """Completes a checkpoint and a compaction that is due, and returns the seconds of both."""
    started = time.perf_counter()
    made = checkpoints.run_once(context, name, PlanRequest(origin="bench")).checkpoint
    seconds = time.perf_counter() - started
    assert made is not None
    started = time.perf_counter()
    records = compaction.compact(context, name)
    ack = made.sealed.acks[0]
    row = {
        "pipeline": name,
        "kind": kind,
        "seconds": round(seconds, 4),
        "compact_seconds": round(time.perf_counter() - started, 4),
        "compacted_rows": [[record.input.rows, record.output.rows] for record in records],
        "closed": ack.emitted,
        "fired": ack.fired,
        "stored_rows": ack.handle.rows,
        "phases_ms": dict(made.sealed.timings_ms),
    }
    sys.stderr.write(json.dumps(row) + "\n")
    return row


def _told(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The medians, their ratios, and the means with compactions."""
    seconds: dict[tuple[str, str], list[float]] = defaultdict(list)
    whole: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows:
        seconds[row["pipeline"], row["kind"]].append(row["seconds"])
        whole[row["pipeline"], row["kind"]].append(row["seconds"] + row["compact_seconds"])
    median = {key: statistics.median(found) for key, found in seconds.items()}
    pairs = {
        "windows_to_fold": (("windows", "still"), ("fold", "still")),
        "closing_to_still": (("windows", "due"), ("windows", "still")),
        "timers_to_process": (("timers", "still"), ("process", "still")),
        "firing_to_process": (("timers", "due"), ("process", "due")),
    }
    return {
        "median_s": {f"{name} {kind}": round(found, 3) for (name, kind), found in median.items()},
        "mean_with_compactions_s": {
            f"{name} {kind}": round(statistics.mean(f), 3) for (name, kind), f in whole.items()
        },
        "ratios": {name: round(median[one] / median[other], 2) for name, (one, other) in pairs.items()},
    }


if __name__ == "__main__":
    sys.exit(main())
