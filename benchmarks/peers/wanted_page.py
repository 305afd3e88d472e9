"""The page's table of targets and results, from the rows alone."""

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from benchmarks.peers.titles import TITLES

Row = Mapping[str, Any]
OURS = "tidemark"
WAYS = (OURS, "tidemark-server")
HALF, TWO, EIGHT = 500_000, 2_000_000, 8_000_000
APPENDED, MERGED = ("append", "append-log"), ("merge", "merge-log")
INTRODUCTION = """\
These are the project's own targets. A peer is measured with the better of its settings, Tidemark in both of its ways.
Figures are medians unless stated otherwise."""
Figure = tuple[str, str, float, bool]
"""The name of a figure, its target, its result, and whether the result meets the target."""


def wanted(rows: Sequence[Row]) -> list[str]:
    """The lines of the section; none if the rows have none of its figures, as in a quick run.

    Args:
        rows: all rows of a run.
    """
    figures = [*_checkpoints(rows), *_many(rows), *_points(rows), *_parts(rows)]
    if not figures:
        return []
    lines = ["", "## Targets and results", "", *INTRODUCTION.splitlines(), ""]
    lines += ["| figure | target | result | |", "|---|---:|---:|---|"]
    return [
        *lines,
        *(f"| {what} | {asked} | {found:.2f} | {_met(will_do)} |" for what, asked, found, will_do in figures),
    ]


def _met(will_do: bool) -> str:
    return "met" if will_do else "**missed**"


def _checkpoints(rows: Sequence[Row]) -> Iterator[Figure]:
    """Cost of a run over state size, against the streaming query with either sink."""
    sizes = (HALF, TWO, EIGHT)
    runs = {(size, kind): _seconds(rows, "a", size, kind) for size in sizes for kind in _kinds(rows)}
    found = {of: statistics.median(seconds) for of, seconds in runs.items() if seconds}
    for way in WAYS:
        if (HALF, way) in found and (EIGHT, way) in found:
            growth = found[EIGHT, way] / found[HALF, way]
            yield f"{TITLES[way]}: a run at 8 M keys, relative to one at 0.5 M", "≤ 1.2", growth, growth <= 1.2
    asked = ((TWO, APPENDED, "append", 4.0), (EIGHT, APPENDED, "append", 4.0), (TWO, MERGED, "MERGE", 10.0))
    for size, kinds, sink, least in asked:
        theirs = min((found[size, kind] for kind in kinds if (size, kind) in found), default=0.0)
        for way in (way for way in WAYS if theirs and (size, way) in found):
            ratio = theirs / found[size, way]
            name = f"Structured Streaming's run, {sink} sink, {size // 1_000_000} M keys, relative to {TITLES[way]}"
            yield name, f"≥ {least:.0f}", ratio, ratio >= least


def _many(rows: Sequence[Row]) -> Iterator[Figure]:
    """The means of many checkpoints, level folds included, and the bytes that each writes."""
    # All forty rounds count, because the systems were warm before the first one.
    theirs = _of(rows, "f", HALF, "append", first=0)
    for way, ours in ((way, _of(rows, "f", HALF, way, first=0)) for way in WAYS):
        if ours and theirs:
            mine = statistics.mean(r["seconds"] + _folds(r) for r in ours)
            ratio = statistics.mean(r["seconds"] for r in theirs) / mine
            what = f"Structured Streaming's run, append sink, 0.5 M keys, means of {len(ours)}"
            yield f"{what}, relative to {TITLES[way]} with level folds", "≥ 2.5", ratio, ratio >= 2.5
    sizes = {kind: [r["bytes"] for r in _of(rows, "a", TWO, kind)] for kind in (OURS, *APPENDED)}
    if sizes[OURS] and sizes["append"]:
        least = min(statistics.median(sizes[kind]) for kind in APPENDED if sizes[kind])
        share = statistics.median(sizes[OURS]) / least
        yield "bytes of a run, relative to Structured Streaming's, append sink, 2 M keys", "≤ 1", share, share <= 1


def _points(rows: Sequence[Row]) -> Iterator[Figure]:
    """Restore points, and the storage of thirty of them."""
    verbs = [r for r in rows if r.get("verb") and r["kind"] == OURS]
    if verbs:
        slowest = max(r["seconds"] for r in verbs)
        yield "the slowest savepoint, restore or fork of any size, s", "≤ 3", slowest, slowest <= 3
    kept = {r["kind"]: r["left"] for r in rows if r.get("kept") == max((r.get("kept", 0) for r in rows), default=0)}
    if OURS in kept and "append" in kept:
        share = kept[OURS] / kept["append"]
        yield "bytes of 30 points, relative to Structured Streaming's, append sink", "≤ 1", share, share <= 1


def _parts(rows: Sequence[Row]) -> Iterator[Figure]:
    """A run in a fresh process, and the read of the range."""
    size = max((r["size"] for r in rows if r["scenario"] == "d"), default=0)
    fresh = {kind: _seconds(rows, "d", size, kind) for kind in (OURS, "append", "append-tuned")}
    names = {
        "append": "a run in a fresh process, relative to Structured Streaming's, append sink",
        "append-tuned": "the same, relative to the query with Tidemark's JVM options and an archive of its own",
    }
    for kind, name in names.items():
        if fresh[OURS] and fresh[kind]:
            ratio = statistics.median(fresh[OURS]) / statistics.median(fresh[kind])
            yield name, "≤ 0.8", ratio, ratio <= 0.8
    read = [r for r in rows if "counted" in r][1:]
    if read:
        ratio = statistics.median(r["count"] for r in read) / statistics.median(r["read"] for r in read)
        yield "speed of Tidemark's read, relative to a bare count of the range", "≥ 0.5", ratio, ratio >= 0.5


def _folds(row: Row) -> float:
    """Seconds of upkeep without a rewrite of the whole base, which is reported separately."""
    return 0.0 if row.get("compacted") == "whole" else float(row["upkeep_seconds"])


def _kinds(rows: Iterable[Row]) -> set[str]:
    return {row["kind"] for row in rows}


def _of(rows: Iterable[Row], scenario: str, size: int, kind: str, first: int = 1) -> list[Row]:
    """The rows of one system's rounds, from round `first` on."""
    asked = (scenario, size, kind)
    return [r for r in rows if (r["scenario"], r["size"], r["kind"]) == asked and r.get("round", first - 1) >= first]


def _seconds(rows: Iterable[Row], scenario: str, size: int, kind: str) -> list[float]:
    return [float(r["seconds"]) for r in _of(rows, scenario, size, kind)]
