"""Writes the results of `make bench`: rows as JSON, a page with medians, ratios and phases, and a plot."""

import json
import random
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.facts import told
from benchmarks.plot import scatter

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "benchmarks"
Rows = Sequence[Mapping[str, Any]]
FORMS = {
    "upserts": "the default",
    "keys": "`--keys-only`, the default under its earlier name",
    "changes": "`--inserts`",
    "values": "`--values`",
}
"""The forms of a diff by their detail; older data has `keys`, which reads the same files and columns as `upserts`."""


def write_report(facts: Mapping[str, Any], rows: Rows) -> None:
    """Writes `checkpoint-cost.json`, `.md` and `.svg` (`…-quick` for a quick run) below docs/benchmarks."""
    name = "checkpoint-cost-quick" if "quick" in str(facts["command"]) else "checkpoint-cost"
    (FOLDER / f"{name}.json").write_text(json.dumps({"facts": dict(facts), "rows": list(rows)}, indent=1) + "\n")
    (FOLDER / f"{name}.md").write_text(page(name, facts, rows))
    series = {_label(found[0]): [r["seconds"] for r in found] for found in _measured(rows).values()}
    (FOLDER / f"{name}.svg").write_text(scatter("Seconds per checkpoint of 20,000 updates", "round", series))


def interval(numerator: Sequence[float], denominator: Sequence[float], seed: int = 1) -> tuple[float, float]:
    """The 95 % bootstrap interval of a ratio of medians."""
    chance = random.Random(seed)
    found = sorted(
        statistics.median(chance.choices(numerator, k=len(numerator)))
        / statistics.median(chance.choices(denominator, k=len(denominator)))
        for _ in range(2_000)
    )
    return found[50], found[-51]


def _label(row: Mapping[str, Any]) -> str:
    kind = "process" if "process" in row["pipeline"] else "fold"
    return f"{kind}, {row['size']:,} keys"


def _measured(rows: Rows) -> dict[str, Rows]:
    """The rounds that count, by pipeline."""
    return {p: [r for r in rows if r["pipeline"] == p and r["round"] >= 0] for p in {r["pipeline"]: 0 for r in rows}}


def page(name: str, facts: Mapping[str, Any], rows: Rows) -> str:
    """Renders the page as Markdown."""
    measured = _measured(rows)
    lines = [
        "# Cost of a checkpoint over state size",
        "",
        told(facts),
        "",
        f"{facts['rounds']} interleaved checkpoints per size, each of {facts['updates']:,} uniform updates, from the",
        "plan's request to Kafka to the published manifest, with a warm Spark Connect server. The final state of each",
        "size was compared with numpy's, key by key.",
        "",
        f"![seconds per checkpoint]({name}.svg)",
        "",
        *_checkpoints(rows, measured),
        "",
        *_compactions(measured),
        "",
        *_diffs(facts["diffs"]),
        "",
        *_phases(measured),
    ]
    return "\n".join(lines) + "\n"


def _checkpoints(rows: Rows, measured: Mapping[str, Rows]) -> list[str]:
    lines = [
        "`ratio` is relative to the median of the smallest size of the kind, with its 95 % bootstrap interval. `bytes`",
        "is the size of a run relative to its keys and fields as one Parquet file. `to fold` is relative to the fold",
        "of the same size.",
        "",
        "| operator | median s | p90 s | ratio | to fold | run kB | bytes | full MB | first checkpoint s |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    smallest: dict[str, list[float]] = {}
    for pipeline, found in measured.items():
        seconds = sorted(r["seconds"] for r in found)
        base = smallest.setdefault(_label(found[0]).partition(",")[0], seconds)
        low, high = interval(seconds, base)
        first = next(r for r in rows if r["pipeline"] == pipeline and r["round"] < 0)
        median = statistics.median(seconds)
        fold = statistics.median(r["seconds"] for r in measured[f"bench-{found[0]['size']}"])
        lines.append(
            f"| {_label(found[0])} | {median:.2f} | {seconds[int(len(seconds) * 0.9)]:.2f} | "
            f"{median / statistics.median(base):.2f} ({low:.2f} to {high:.2f}) | {median / fold:.2f} | "
            f"{statistics.median(r['run_bytes'] for r in found) / 1e3:.0f} | "
            f"{statistics.median(r['run_bytes'] / r['plain_bytes'] for r in found):.2f} | "
            f"{found[-1]['full_bytes'] / 1e6:.1f} | {first['seconds']:.1f} |"
        )
    return lines


def _compactions(measured: Mapping[str, Rows]) -> list[str]:
    lines = [
        "Due compactions run after each checkpoint. A whole-base rewrite includes the first checkpoint's rows.",
        "`mean` is the mean of checkpoint and level fold together, without whole-base rewrites.",
        "",
        "| operator | level folds | median s | whole-base rewrites | s | mean s | mean / median checkpoint |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for found in measured.values():
        done = [r for r in found if "compact_seconds" in r]
        whole = [r["compact_seconds"] for r in done if r["whole"]]
        levels = [r["compact_seconds"] for r in done if not r["whole"]]
        mean = (sum(r["seconds"] for r in found) + sum(levels)) / len(found)
        lines.append(
            f"| {_label(found[0])} | {len(levels)} | {statistics.median(levels or [0]):.2f} | {len(whole)} | "
            f"{statistics.median(whole or [0]):.1f} | {mean:.2f} | "
            f"{mean / statistics.median(r['seconds'] for r in found):.2f} |"
        )
    return lines


def _diffs(diffs: Rows) -> list[str]:
    lines = [
        "A diff over about one percent of the keys of the largest fold: the share of the later state's bytes that it",
        "reads, by the form of `tidemark state diff` (values of 20 keys).",
        "",
        "| form | changed keys | bytes read | s |",
        "|---|---:|---:|---:|",
    ]
    return lines + [
        f"| {FORMS[d['detail']]} | {d['changed']:,} | {d['share']:.1%} | {d['seconds']:.2f} |" for d in diffs
    ]


def _phases(measured: Mapping[str, Rows]) -> list[str]:
    names = list(dict.fromkeys(name for rows in measured.values() for r in rows for name in r["phases_ms"]))
    lines = [
        "Median milliseconds by phase; `rest` is planning, taking the attempt, sealing and publishing.",
        "",
        "| operator | " + " | ".join(names) + " | rest |",
        "|---|" + "---:|" * (len(names) + 1),
    ]
    for rows in measured.values():
        cells = [statistics.median(r["phases_ms"].get(name, 0) for r in rows) for name in names]
        rest = statistics.median(r["seconds"] * 1000 - sum(r["phases_ms"].values()) for r in rows)
        lines.append(f"| {_label(rows[0])} | " + " | ".join(f"{c:.0f}" for c in [*cells, rest]) + " |")
    return lines
