"""Writes docs/benchmarks/nexmark.md from the rows of `python -m benchmarks.nexmark`."""

import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.facts import told
from benchmarks.report import FOLDER

TITLES = {
    "q0": "0 pass bids through",
    "q1": "1 another currency",
    "q2": "2 bids on some auctions",
    "q3": "3 who sells in three states",
    "q4": "4 mean price per category",
    "q5": "5 hot auctions, every 2 s over 10 s",
    "q6": "6 mean of the last ten prices per seller",
    "q7": "7 highest bid of each 10 s",
    "q8": "8 new people who sell, per 10 s",
    "q11": "11 sessions of bidders",
    "q12": "12 bids per bidder and 10 s of arrival",
    "q13": "13 bids with a small table",
}
METHOD = """\
One generator makes the events: 1 in 50 is a person, 3 are auctions, 46 are bids, ten thousand in a second of event
time. They wait in three topics of four partitions, as JSON. Each query is a pipeline of its own. It reads the records
of its topics in four batches: four checkpoints in Tidemark, with all compactions that become due, and four or more
micro-batches of a Structured Streaming query with `Trigger.AvailableNow`, RocksDB and a Delta table. Both run one
after the other in one driver of two cores in one process, which has run other queries before. Tidemark's rows are
compared with DuckDB's answers over all events; if one differs, the program fails.

The streaming queries do a little less: in 5 and 7 they keep one of several best auctions, and they have no ids per
row. Queries 4 and 6 need a function with state and timers, which Structured Streaming runs per row in a Python
worker; they are not measured there. A checkpoint of Tidemark is a restore point, a micro-batch is one as long as its
log is kept."""


def write_page(data: Mapping[str, Any], folder: Path = FOLDER) -> None:
    """Writes `nexmark.json` and `.md`."""
    (folder / "nexmark.json").write_text(json.dumps(data, indent=2) + "\n")
    (folder / "nexmark.md").write_text(page(data))


def page(data: Mapping[str, Any]) -> str:
    """Renders the page as Markdown.

    Args:
        data: the facts of a run, and its `rows`.
    """
    facts = textwrap.fill(told(data), 120, break_long_words=False, break_on_hyphens=False)
    text = "\n\n".join(textwrap.fill(part, 120, break_on_hyphens=False) for part in METHOD.split("\n\n"))
    return "\n".join(["# Nexmark", "", facts, "", text, "", *_table(data["rows"], data["events"])]) + "\n"


def _table(rows: Sequence[Mapping[str, Any]], events: int) -> Iterator[str]:
    yield f"Seconds per {events:,} events, of which a query reads those of its topics:"
    yield ""
    yield "| query | records | Tidemark | of which compactions | Structured Streaming | ratio |"
    yield "|---|---:|---:|---:|---:|---:|"
    for row in rows:
        mine = row["tidemark_s"] + row["compactions_s"]
        its, ratio = "–", "–"
        if "streaming_s" in row:
            its, ratio = f"{row['streaming_s']:.1f}", f"{mine / row['streaming_s']:.2f}"
        title = TITLES[row["query"]]
        yield f"| {title} | {row['records']:,} | {mine:.1f} | {row['compactions_s']:.1f} | {its} | {ratio} |"
