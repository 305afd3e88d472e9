"""What closed windows cost later checkpoints: `PYTHONPATH=include:. python -m benchmarks.closed_history`.

Pipelines that differ only in their history: the first checkpoint opens a window for each of half a million, two, or
eight million keys; the second one closes all of them. Rounds of 20,000 updates follow, one checkpoint per pipeline and
round. Each hour has two of them: the first closes the windows of two hours before, the second closes none. Due
compactions run after each checkpoint, and their seconds count in the means.
"""

import json
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bench import create_topic
from benchmarks.event_time import checkpoint, send
from benchmarks.facts import made_by
from benchmarks.report import FOLDER
from devstack import control
from tidemark.context import Context, open_context
from tidemark.settings import Settings, load_settings

QUICK = os.environ.get("BENCH") == "quick"
SIZES = (5_000, 20_000, 80_000) if QUICK else (500_000, 2_000_000, 8_000_000)
UPDATES, SEED = 2_000 if QUICK else 20_000, 20130102
ROUNDS = 4 if QUICK else 28
WARM = 0 if QUICK else 4
COMMAND = "PYTHONPATH=include:. python -m benchmarks.closed_history"
PIPELINES = f"""
from benchmarks.pipelines import Totals, Update
from tidemark import Fold, KafkaSource, Pipeline, Tumbling, Watermark


def of(size):
    return Pipeline(
        name=f"history-{{size}}",
        source=KafkaSource(f"events-{{size}}", Update, event_time="at", watermark=Watermark(delay="1h")),
        operators=[Fold("all", key_by="key", state=Totals, window=Tumbling("1h"))],
    )


small, middle, large = map(of, {SIZES})
"""


def main() -> int:
    """Measures, prints one JSON object, and writes it unless the run is a quick one."""
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as home:
        folder = Path(home) / "pipelines"
        folder.mkdir()
        (folder / "closed_history.py").write_text(PIPELINES)
        settings = load_settings(home=home, pipelines=str(folder))
        try:
            control.up(settings, only=("kafka", "spark"))
            rows = list(_measured(open_context(settings), settings))
        finally:
            control.down(settings)
    facts = made_by(COMMAND, SEED) | {"sizes": list(SIZES), "updates": UPDATES, "rounds": ROUNDS}
    report = json.dumps(facts | _told(rows) | {"rows": rows}, indent=2) + "\n"
    sys.stdout.write(report)
    if not QUICK:
        (FOLDER / "closed-history.json").write_text(report)
    return 0


def _measured(context: Context, settings: Settings) -> Iterator[dict[str, Any]]:
    chance = np.random.default_rng(SEED)
    for size in SIZES:
        create_topic(settings.kafka_address, f"events-{size}")
        send(settings, f"events-{size}", np.arange(size), np.zeros(size, int))
        yield {"history": size} | checkpoint(context, f"history-{size}", "load")
        _update(settings, size, chance, 2)
        yield {"history": size} | checkpoint(context, f"history-{size}", "close")
    for n in range(ROUNDS):
        kind = "warm" if n < WARM else "still" if n % 2 else "due"
        for size in SIZES:
            _update(settings, size, chance, 4 + n // 2)
            yield {"history": size} | checkpoint(context, f"history-{size}", kind)


def _update(settings: Settings, size: int, chance: np.random.Generator, hour: int) -> None:
    send(settings, f"events-{size}", chance.integers(0, size, UPDATES), np.full(UPDATES, hour))


def _told(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The medians by history, the means with compactions, and their ratios to those of the smallest history."""
    told: dict[str, Any] = {}
    for kind in ("due", "still"):
        of = {size: [row for row in rows if (row["history"], row["kind"]) == (size, kind)] for size in SIZES}
        median = {size: statistics.median(row["seconds"] for row in of[size]) for size in SIZES}
        whole = {size: statistics.mean(row["seconds"] + row["compact_seconds"] for row in of[size]) for size in SIZES}
        for title, by_size in (("median_s", median), ("mean_with_compactions_s", whole)):
            told.setdefault(title, {})[kind] = {str(size): round(s, 3) for size, s in by_size.items()}
        told.setdefault("ratios", {})[kind] = {str(s): round(median[s] / median[SIZES[0]], 2) for s in SIZES[1:]}
    return told


if __name__ == "__main__":
    sys.exit(main())
