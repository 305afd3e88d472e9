"""The page of `benchmarks.scale`: a table per dimension, and the cost of ten times the size."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

Rows = Sequence[Mapping[str, Any]]

TITLES = {
    "manifests": "checkpoints of one pipeline",
    "pages": "pages of one pipeline, by its checkpoints",
    "partitions": "partitions",
    "pipelines": "pipelines",
}
WORDS = {
    "plan_cold": "plan of the next checkpoint, on a host without an index",
    "plan": "plan of the next checkpoint",
    "list": "`checkpoint list` of 50",
    "retention_cold": "retention's plan, on a host without an index",
    "retention_again": "retention's plan again, by another process",
    "retention_one_more": "the same after one more checkpoint",
    "pages_first": "first answer of the page after a start",
    "pages_longest": "the most expensive answer until the whole history is read",
    "pages_read": "answers until the whole history is read",
    "page_overview": "overview",
    "page_search": "search for an id",
    "page_timelines": "timelines",
    "page_details": "details of a checkpoint",
    "page_graph": "its lineage",
    "find_first": "find a declaration, importing all files",
    "find_again": "find it again in the same process",
    "names": "names of all pipelines",
    "all_overviews": "first overview of each pipeline",
    "overview": "overview of one, again",
    "dags": "a DAG for each",
}

BYTES = {
    "pages_answers": "number of answers until the whole history is read",
    "manifest_bytes": "bytes of a manifest",
    "index_bytes": "bytes of the host's index",
    "peak_mb": "peak memory, MB",
}


def page(data: str, facts: Mapping[str, Any], rows: Mapping[str, Rows]) -> str:
    """Renders the page as Markdown.

    Args:
        data: the name of the file with the figures.
        facts: the cores and the Python of the machine, and whether the run was a quick one.
        rows: the rows of each dimension, one per size.
    """
    loads = [load for found in rows.values() for row in found for load in row["load"]]
    lines = [
        "# What grows with checkpoints, partitions and pipelines",
        "",
        f"Made by `{'BENCH=quick ' if facts['quick'] else ''}PYTHONPATH=include:. python -m benchmarks.scale`; data: "
        f"[{data}]({data}); {facts['cores']} cores, Python {facts['python']}.",
        f"The load of the machine was between {min(loads)} and {max(loads)}, so the tables show seconds",
        "of CPU, which depend on it less; the data has both. Each figure is the best of three tries, or the only one.",
        "`× 10` is the cost of ten times as much, from the last two sizes. Histories are copies of one real checkpoint",
        "with five operators; Kafka and Spark are twins in memory.",
    ]
    for name, found in rows.items():
        lines += ["", *_table(TITLES[name], found)]
    return "\n".join(lines) + "\n"


def _table(title: str, rows: Rows) -> list[str]:
    lines = [
        f"## {title[0].upper()}{title[1:]}",
        "",
        "| seconds of CPU | " + " | ".join(f"{row['size']:,}" for row in rows) + " | × 10 |",
        "|---|" + "---:|" * (len(rows) + 1),
    ]
    found = {words: [row.get(key, {}).get("cpu_s") for row in rows] for key, words in WORDS.items()}
    found |= {words: [row.get(key) for row in rows] for key, words in BYTES.items()}
    for words, values in found.items():
        if values[0] is not None:
            cells = ["–" if n is None else f"{n:,}" if isinstance(n, int) else f"{n:.3f}" for n in values]
            lines.append(f"| {words} | " + " | ".join(cells) + f" | {_tenfold(rows, values)} |")
    return lines


def _tenfold(rows: Rows, values: Sequence[float | None]) -> str:
    """The growth per tenfold size, from the last two sizes; a dash if a time is too short for the clock or missing."""
    before, last = values[-2:]
    if not before or not last or last < 0.005:
        return "–"
    slope = math.log(last / before) / math.log(rows[-1]["size"] / rows[-2]["size"])
    return f"{10**slope:.1f}"
