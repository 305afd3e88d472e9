"""Writes what `make bench` measured: rows as JSON, and a page with medians, ratios and phases."""

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "benchmarks"


def write_report(facts: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> None:
    """Writes `checkpoint-cost.json` and `checkpoint-cost.md` (`…-quick` for a quick run) below docs/benchmarks."""
    name = "checkpoint-cost-quick" if "quick" in str(facts["command"]) else "checkpoint-cost"
    (FOLDER / f"{name}.json").write_text(json.dumps({"facts": dict(facts), "rows": list(rows)}, indent=1) + "\n")
    (FOLDER / f"{name}.md").write_text(_page(facts, rows))


def _page(facts: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    sizes = sorted({r["size"] for r in rows})
    measured = {s: [r for r in rows if r["size"] == s and r["round"] >= 0] for s in sizes}
    medians = {s: statistics.median(r["seconds"] for r in measured[s]) for s in sizes}
    lines = [
        "# Cost of a checkpoint over state size",
        "",
        f"Made by `{facts['command']}` (seed {facts['seed']}, {facts['cores']} cores, Python {facts['python']}).",
        f"{facts['rounds']} interleaved checkpoints per size, each of {facts['updates']:,} uniform updates, from the",
        "plan's question to Kafka to the published manifest, with a warm Spark Connect server. The final state of each",
        "size was compared with numpy's, key by key.",
        "",
        "| keys | median s | p90 s | ratio to smallest | run kB | full MB | first checkpoint s |",
        "|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for size in sizes:
        seconds = sorted(r["seconds"] for r in measured[size])
        first = next(r for r in rows if r["size"] == size and r["round"] < 0)
        lines.append(
            f"| {size:,} | {medians[size]:.2f} | {seconds[int(len(seconds) * 0.9)]:.2f} | "
            f"{medians[size] / medians[sizes[0]]:.2f} | "
            f"{statistics.median(r['run_bytes'] for r in measured[size]) / 1e3:.0f} | "
            f"{measured[size][-1]['full_bytes'] / 1e6:.1f} | {first['seconds']:.1f} |"
        )
    return "\n".join([*lines, "", *_phases(measured)]) + "\n"


def _phases(measured: Mapping[int, Sequence[Mapping[str, Any]]]) -> list[str]:
    names = list(dict.fromkeys(name for rows in measured.values() for r in rows for name in r["phases_ms"]))
    lines = [
        "Median milliseconds by phase; `rest` is planning, taking the attempt, sealing and publishing.",
        "",
        "| keys | " + " | ".join(names) + " | rest |",
        "|---:|" + "---:|" * (len(names) + 1),
    ]
    for size, rows in measured.items():
        cells = [statistics.median(r["phases_ms"].get(name, 0) for r in rows) for name in names]
        rest = statistics.median(r["seconds"] * 1000 - sum(r["phases_ms"].values()) for r in rows)
        lines.append(f"| {size:,} | " + " | ".join(f"{c:.0f}" for c in [*cells, rest]) + " |")
    return lines
