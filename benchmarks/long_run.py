"""400 checkpoints in a row at 8 M keys, every cost counted: `PYTHONPATH=include:. python -m benchmarks.long_run`.

The first checkpoint reads one update per key; each of the others reads 20,000 uniform updates. Compactions that are due
run after each checkpoint and count, level folds and rewrites of the base alike. Then checkpoints run while another
process rewrites the whole base again and again, in turns with checkpoints that have the machine for themselves. Every
key is compared with numpy at the end, and long-run.json is written.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks import bench, generator
from benchmarks.facts import made_by
from benchmarks.report import FOLDER
from devstack import control
from tidemark.context import Context, open_context
from tidemark.operations import checkpoints, compaction
from tidemark.ports import PlanRequest
from tidemark.settings import Settings, load_settings

KEYS = 20_000 if bench.QUICK else 8_000_000
CHECKPOINTS, TURNS, PER_TURN = (10, 1, 2) if bench.QUICK else (400, 6, 10)
NAME = f"bench-{KEYS}"
COMMAND = "PYTHONPATH=include:. python -m benchmarks.long_run"
WARM = 0 if bench.QUICK else 20
"""Checkpoints that do not count: code is compiled meanwhile."""
REWRITING = f"""
import sys, time
from tidemark.context import open_context
from tidemark.operations import compaction

compaction.yield_processors()
while True:
    started = time.perf_counter()
    compaction.compact(open_context(), "{NAME}", full=True)
    print(time.perf_counter() - started, flush=True)
"""


def main() -> int:
    """Measures, prints one JSON object, and writes it unless the run is a quick one."""
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as home:
        settings = load_settings(home=home, pipelines=str(Path(bench.__file__).parent))
        control.up(settings, only=("kafka", "spark"))
        try:
            context = open_context(settings)
            numbers = iter(range(10**9))
            rows = list(_in_a_row(context, settings, numbers))
            turns = list(_in_turns(context, settings, numbers))
            checked = bench.check(context, NAME, KEYS, next(numbers))
        finally:
            control.down(settings)
    facts = made_by(COMMAND, bench.SEED) | {"keys": KEYS, "updates": bench.UPDATES, "checked_keys": checked}
    report = json.dumps(facts | _told(rows, turns) | {"rows": rows, "turns": turns}, indent=2) + "\n"
    sys.stdout.write(report)
    if not bench.QUICK:
        (FOLDER / "long-run.json").write_text(report)
    return 0


def _in_a_row(context: Context, settings: Settings, numbers: Iterator[int]) -> Iterator[dict[str, Any]]:
    bench.create_topic(settings.kafka_address, NAME)
    generator.produce(settings.kafka_address, NAME, generator.first(KEYS))
    checkpoints.run_once(context, NAME, PlanRequest(origin="bench"))
    for _ in range(CHECKPOINTS):
        row = _checkpoint(context, settings, next(numbers))
        started = time.perf_counter()
        done = compaction.compact(context, NAME)
        row |= {"compact_seconds": round(time.perf_counter() - started, 4), "written_bytes": 0, "merged_rows": 0}
        if done:
            (record,) = done
            kept = sum(s.bytes for s in record.input if s in record.output.segments)
            row |= {"written_bytes": record.output.bytes - kept, "merged_rows": record.input.rows}
            row["whole"] = len({f.checkpoint for s in record.output for f in context.tables.files_of(s)}) == 1
        sys.stderr.write(json.dumps(row) + "\n")
        yield row


def _in_turns(context: Context, settings: Settings, numbers: Iterator[int]) -> Iterator[dict[str, Any]]:
    """Yields checkpoints without rewrites of the base and during them."""
    for turn in range(2 * TURNS):
        with _rewriting(settings) if turn % 2 else _alone() as seconds:
            for _ in range(PER_TURN):
                row = _checkpoint(context, settings, next(numbers)) | {"turn": turn, "beside": bool(turn % 2)}
                sys.stderr.write(json.dumps(row) + "\n")
                yield row | {"rewrites": len(seconds)}


def _checkpoint(context: Context, settings: Settings, n: int) -> dict[str, Any]:
    batch = generator.uniform(KEYS, bench.UPDATES, bench.SEED + n)
    generator.produce(settings.kafka_address, NAME, batch)
    started = time.perf_counter()
    made = checkpoints.run_once(context, NAME, PlanRequest(origin="bench")).checkpoint
    seconds = time.perf_counter() - started
    assert made is not None
    return {"n": n, "seconds": round(seconds, 4), "run_bytes": made.sealed.acks[0].run_bytes}


@contextmanager
def _alone() -> Iterator[Sequence[float]]:
    yield []


@contextmanager
def _rewriting(settings: Settings) -> Iterator[Sequence[float]]:
    """Rewrites the base again and again in another process; yields the seconds of each rewrite, at the end."""
    env = {**os.environ, "TIDEMARK_HOME": str(settings.home), "TIDEMARK_PIPELINES": str(Path(bench.__file__).parent)}
    found: list[float] = []
    with subprocess.Popen([sys.executable, "-c", REWRITING], env=env, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            found.append(float(child.stdout.readline()))
            yield found
        finally:
            child.terminate()
            rest, _ = child.communicate()
            found += map(float, rest.split())
            sys.stderr.write(f"{len(found)} rewrites, seconds: {[round(s, 1) for s in found]}\n")


def _told(rows: Sequence[dict[str, Any]], turns: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The mean with all compactions relative to the median without; write amplification; the effect of rewrites."""
    warm = rows[WARM:]
    seconds, whole = [r["seconds"] for r in warm], [r["seconds"] + r["compact_seconds"] for r in warm]
    alone, beside = ([r["seconds"] for r in turns if r["beside"] is side] for side in (False, True))
    runs = sum(r["run_bytes"] for r in warm)
    return {
        "checkpoints": len(warm),
        "median_s": round(statistics.median(seconds), 3),
        "p95_s": round(_p95(seconds), 3),
        "mean_s": round(statistics.mean(seconds), 3),
        "mean_with_compactions_s": round(statistics.mean(whole), 3),
        "mean_to_median": round(statistics.mean(whole) / statistics.median(seconds), 2),
        "rewrites_of_the_base_s": [r["compact_seconds"] for r in rows if r.get("whole")],
        "level_folds": sum(bool(r["merged_rows"]) and not r.get("whole") for r in warm),
        "write_amplification": round((runs + sum(r["written_bytes"] for r in warm)) / runs, 2),
        "beside_rewrites": {
            "p95_alone_s": round(_p95(alone), 3),
            "p95_s": round(_p95(beside), 3),
            "p95_to_alone": round(_p95(beside) / _p95(alone), 2),
            "median_to_alone": round(statistics.median(beside) / statistics.median(alone), 2),
        },
    }


def _p95(seconds: Sequence[float]) -> float:
    return sorted(seconds)[max(0, round(0.95 * len(seconds)) - 1)]


if __name__ == "__main__":
    sys.exit(main())
