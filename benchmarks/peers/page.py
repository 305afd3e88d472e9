"""The comparison's page, from its rows alone: question, method, tables, conclusions, and where others are ahead.

`python -m benchmarks.peers.page` rewrites the page from the stored rows.
"""

import itertools
import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.facts import told
from benchmarks.peers.points_page import by_kind, losses, sections
from benchmarks.peers.titles import TITLES
from benchmarks.peers.wanted_page import wanted
from benchmarks.plot import scatter
from benchmarks.report import FOLDER, interval

Row = Mapping[str, Any]
OURS = "tidemark"
ENOUGH = 10
"""Rounds from which an interval, or a crossing, is claimed."""
QUESTIONS = {
    "a": (
        "Cost of a checkpoint over state size",
        "Does the cost depend on the number of changed keys, or on the size of the state?",
    ),
    "b": ("Churn", "At which share of changed keys does another system become faster?"),
    "c": ("Key choice", "Do hot keys, or neighbouring keys, change the ranking?"),
    "d": (
        "A scheduled run in a fresh process",
        "How long does it take from the start of a process to durable rows? In this section, upkeep is the time that\n"
        "the process then needs to end. Each system starts its driver as its user would: jars on the class path, no\n"
        "web page, 4 GB. Tidemark's JVM compiles late and maps the archive of classes that `make setup-driver`\n"
        "creates ([ADR 0020](../adr/0020-a-driver-maps-its-classes.md)); *with Tidemark's JVM options* is the query\n"
        "with both, and with an archive of its own run.",
    ),
    "h": ("An idle run", "What does a run cost that finds no records?"),
}
METHOD = """\
Every system reads the same records of one Kafka topic (4 partitions, JSON, 16-byte keys that spread like hashes) and
keeps count, sum and maximum per key. 5 % of the records have a new key, and 1 % delete their key. A run begins when all
records of a batch are in the topic, and ends when the new state is durable. In each round the systems take turns, a
different system begins each round, and the first round does not count unless it is the only one. At the end the state
of every system was compared with numpy's, row by row; a single wrong row prevents the page from being written.

- *Tidemark* compacts after its runs; the compaction is timed separately, as upkeep. *Own driver* shares one warm JVM of
  two cores with all Spark peers and compiles by Java's default thresholds. *Connect server* is the way of the embedded
  stack, in a JVM of its own. Each had more than twenty runs that no table shows.
- *Structured Streaming* runs a new query with `Trigger.AvailableNow` per batch, with state in RocksDB and without
  counting rows. It was measured with whole snapshots and with a change log (`minDeltasForSnapshot=1`,
  `unloadOnCommit`). Its sink appends changed rows to a Delta table, or merges them.
- *transformWithState* is the same query with a state function in Python, which asks for the state of each key over a
  socket.
- *delta-rs MERGE* does without a JVM: librdkafka reads, Arrow decodes, DuckDB folds, and delta-rs merges.
- AUTO CDC of Spark's declarative pipelines, in later releases than the pyspark that Tidemark pins, was not measured: it
  keeps the newest event of each key, so it cannot count or add up.
- *Delta MERGE* folds the range in a batch and merges it into a table, which is the state. *Full overwrite* rewrites the
  whole table.
- *Flink* is resident: one JVM, two task slots, RocksDB, incremental checkpoints, triggered over REST. The package from
  PyPI does not include the connector for Kafka, so a source of 100 lines over Kafka's own client replaces it. Seconds
  are from the first record to the completed checkpoint. Flink has no sink.
- Bytes are the size of the files that a run added or changed in the durable folder of the system, results included;
  the median over rounds."""
STORAGE = """\
Nothing was deleted: you can go back to every version of a table, the last 30 checkpoints of Flink and the last hundred
batches of a query. The bytes are those of the whole durable folder. The last column is an extrapolation for every size
and system; a section below has measurements of that many points."""
RESTORED = """\
Each system keeps one point, processes a batch, restores its state to the point, and forks it. Each verb ran once. A run
after the restore and a run of the fork both produced numpy's state. Structured Streaming needs several steps: copy the
query's checkpoint folder and note the table's version; later copy the folder back and clone that version, because
Delta's sink skips batches that a restored table remembers (delta#1813). Delta needs RESTORE or a shallow clone, and the
offsets, as long as the table was not vacuumed. Flink's savepoint has RocksDB's own format; restore and fork start a
JVM."""
NO_FLINK = "Flink was not installed and did not take part (`make setup-flink`)."
LOSSES = """\
- A resident job needs no start: if you need a checkpoint every few seconds, use Flink. Its price is a process that
  always runs.
- Tidemark's state and an appended table must be resolved before they are read as a whole; a merged or overwritten table
  is read directly ([state costs](state-costs.md)).
- Tidemark's cost depends on the number of changed keys; the table of churn shows the effect when many keys change.
- All systems ran on one machine with a local disk; a bucket was not measured."""


def write_page(facts: Mapping[str, Any], rows: Sequence[Row], folder: Path = FOLDER) -> None:
    """Writes `peers.json`, `.md` and `.svg` (`peers-quick…` for a quick run)."""
    name = "peers-quick" if "quick" in str(facts["command"]) else "peers"
    text = json.dumps({"facts": dict(facts), "rows": list(rows)}, indent=1)
    (folder / f"{name}.json").write_text(text + "\n")
    (folder / f"{name}.md").write_text("\n".join(_page(name, facts, rows)) + "\n")
    largest = max(r["size"] for r in _of(rows, "a"))
    series = by_kind(r for r in _of(rows, "a") if r["size"] == largest and r["round"] >= 0)
    seconds = {TITLES[kind]: [r["seconds"] for r in found] for kind, found in series.items()}
    (folder / f"{name}.svg").write_text(scatter(f"Seconds per run, {largest:,} keys", "round", seconds))


def _page(name: str, facts: Mapping[str, Any], rows: Sequence[Row]) -> list[str]:
    lines = [
        "# Comparison with other systems",
        "",
        told(facts),
        "",
        "Question: what does it cost to update keyed state with a batch of changes and to keep it durable, with",
        "Tidemark and with its alternatives, on the same machine in the same run?",
        "",
        "## Method",
        "",
        *METHOD.splitlines(),
        *([] if "flink" in facts["versions"] else ["", NO_FLINK]),
        "",
        f"![seconds per run]({name}.svg)",
        *wanted(rows),
    ]
    for letter, (title, question) in QUESTIONS.items():
        if _of(rows, letter):
            lines += ["", f"## {title}", "", question, "", *_table(_of(rows, letter)), "", *_meaning(_of(rows, letter))]
        if letter == "b" and _of(rows, letter):
            lines += _crossings(rows)
    lines += [*_storage(rows), *sections(rows), *_restored(rows), *_reading(rows)]
    return [*lines, "", "## Checks", "", *_checks(rows), "", "## Where others are ahead", "", *_losses(rows)]


def _of(rows: Iterable[Row], scenario: str) -> list[Row]:
    return [r for r in rows if r["scenario"] == scenario and "round" in r]


def _restored(rows: Iterable[Row]) -> list[str]:
    found: dict[tuple[int, str], dict[str, float]] = {}
    for row in rows:
        if "verb" in row:
            found.setdefault((row["size"], row["kind"]), {})[row["verb"]] = row["seconds"]
    if not found:
        return []
    lines = ["", "## Savepoint, restore, fork", "", *RESTORED.splitlines(), ""]
    lines += ["| keys | system | savepoint s | restore s | fork s |", "|---:|---|---:|---:|---:|"]
    verbs = ("savepoint", "restore", "fork")
    for (size, kind), seconds in found.items():
        lines.append(f"| {size:,} | {TITLES[kind]} | " + " | ".join(f"{seconds[v]:.2f}" for v in verbs) + " |")
    return lines


def _reading(rows: Iterable[Row]) -> list[str]:
    found = [r for r in rows if "counted" in r][1:]
    if not found:
        return []
    read, count = _median(found, "read"), _median(found, "count")
    return [
        "",
        "## Reading the range",
        "",
        f"Tidemark's query that reads, decodes and tallies {found[0]['records']:,} records takes {read:.2f} s,",
        f"where Spark counts the same range, with the same options, in {count:.2f} s:",
        f"{count / read:.2f} of the bare speed (medians of {len(found)} rounds).",
        "The query of a small checkpoint also folds and writes.",
    ]


def _storage(rows: Iterable[Row]) -> list[str]:
    """The bytes that each run adds, by keys and kind, from the folder's size after the load and after the last run."""
    found: dict[tuple[int, str], list[Row]] = {}
    for row in _of(rows, "a"):
        found.setdefault((row["size"], row["kind"]), []).append(row)
    lines = ["", "## Storage per run", "", *STORAGE.splitlines(), ""]
    lines += ["| keys | system | after the load MB | runs | each adds MB | 30 points MB |"]
    lines += ["|---:|---|---:|---:|---:|---:|"]
    for (size, kind), taken in found.items():
        first, last, runs = taken[0]["folder_bytes"] / 1e6, taken[-1]["folder_bytes"] / 1e6, len(taken) - 1
        if runs:
            each = (last - first) / runs
            lines.append(
                f"| {size:,} | {TITLES[kind]} | {first:,.1f} | {runs} | {each:,.2f} | {first + 30 * each:,.1f} |"
            )
    return lines


def _groups(rows: Sequence[Row]) -> dict[tuple[int, int, str], dict[str, list[Row]]]:
    """The rounds that count, by (keys, updates, choice) and kind."""
    groups: dict[tuple[int, int, str], list[Row]] = {}
    for row in rows:
        if row["round"] >= 0:
            groups.setdefault((row["size"], row["updates"], row["choice"]), []).append(row)
    return {asked: {k: counted(found) for k, found in by_kind(group).items()} for asked, group in groups.items()}


def counted(rows: Sequence[Row]) -> list[Row]:
    """Leaves out the round that warms up, unless it is the only one."""
    return [r for r in rows if r["round"] > 0] or list(rows)


def _mean(rows: Sequence[Row]) -> float:
    """The mean of runs with their upkeep."""
    return float(statistics.mean(r["seconds"] + r["upkeep_seconds"] for r in rows))


def _median(rows: Sequence[Row], what: str) -> float:
    return float(statistics.median(r[what] for r in rows))


def _table(rows: Sequence[Row]) -> list[str]:
    lines = [
        "| keys | updates | choice | system | rounds | median s | to Tidemark | 95 % interval"
        " | mean with upkeep s | to Tidemark | kB |",
        "|---:|---:|---|---|---:|---:|---:|---|---:|---:|---:|",
    ]
    for (size, updates, choice), kinds in _groups(rows).items():
        ours = [r["seconds"] for r in kinds[OURS]]
        for kind, found in kinds.items():
            seconds = [r["seconds"] for r in found]
            low, high = interval(seconds, ours)
            between = f"{low:.2f} to {high:.2f}" if min(len(seconds), len(ours)) >= ENOUGH else "–"
            mean = _mean(found)
            lines.append(
                f"| {size:,} | {updates:,} | {choice} | {TITLES[kind]} | {len(found)} |"
                f" {statistics.median(seconds):.2f} |"
                f" {statistics.median(seconds) / statistics.median(ours):.2f} | {between} |"
                f" {mean:.2f} | {mean / _mean(kinds[OURS]):.2f} | {_median(found, 'bytes') / 1e3:,.0f} |"
            )
    return lines


def _meaning(rows: Sequence[Row]) -> list[str]:
    """Derives from the figures which system was the fastest, and how the cost grows with the keys."""
    groups = _groups(rows)
    lines = []
    for (size, updates, choice), kinds in groups.items():
        order = sorted(kinds, key=lambda kind: _median(kinds[kind], "seconds"))
        quickest, place = TITLES[order[0]], order.index(OURS) + 1
        lines.append(
            f"- {size:,} keys, {updates:,} updates, {choice}: {quickest} is the quickest; {TITLES[OURS]} is number"
            f" {place} of {len(order)}."
        )
    small, large = min(groups), max(groups)
    if small[0] < large[0]:
        for kind in (k for k in groups[small] if k in groups[large]):
            ratio = _median(groups[large][kind], "seconds") / _median(groups[small][kind], "seconds")
            lines.append(f"- {TITLES[kind]}: {large[0]:,} keys take {ratio:.2f} times as long as {small[0]:,}.")
    return lines


def _crossings(rows: Sequence[Row]) -> list[str]:
    """Lists the shares of changed keys between which a system overtakes in the mean; the middle one is section a's."""
    size = _of(rows, "b")[0]["size"]
    groups = _groups([r for r in (*_of(rows, "a"), *_of(rows, "b")) if r["size"] == size])
    means = {
        asked[1]: {kind: _mean(found) for kind, found in kinds.items() if len(found) >= ENOUGH}
        for asked, kinds in groups.items()
    }
    lines = []
    for few, many in itertools.pairwise(sorted(asked for asked, found in means.items() if OURS in found)):
        for kind in means[few].keys() & means[many].keys() - {OURS}:
            if means[few][kind] >= means[few][OURS] and means[many][kind] < means[many][OURS]:
                lines.append(
                    f"- Between {few / size:.1%} and {many / size:.1%} {TITLES[kind]} overtakes {TITLES[OURS]}, upkeep"
                    " included."
                )
    return sorted(lines)


def _checks(rows: Iterable[Row]) -> list[str]:
    done = [r for r in rows if "checked" in r]
    total = sum(r["checked"]["keys"] for r in done)
    return [f"States: {len(done)}, with {total:,} rows in all; every row equalled numpy's."]


def _losses(rows: Iterable[Row]) -> list[str]:
    every = list(rows)
    lines = []
    for letter in QUESTIONS:
        for (size, updates, choice), kinds in _groups(_of(every, letter)).items():
            ours = _median(kinds[OURS], "seconds")
            for kind, found in kinds.items():
                if not kind.startswith(OURS) and (theirs := _median(found, "seconds")) < ours:
                    lines.append(
                        f"- {QUESTIONS[letter][0]}, {size:,} keys, {updates:,} updates, {choice}: {TITLES[kind]}"
                        f" took {theirs:.2f} s, {TITLES[OURS]} {ours:.2f} s."
                    )
    for row in (r for r in every if "cpu_seconds" in r.get("checked", {})):
        held = row["checked"]
        lines.append(
            f"- Flink's process for {row['size']:,} keys held {held['mb']:,} MB and had used"
            f" {held['cpu_seconds']:.0f} s of CPU by the end of its rounds."
        )
    return [*lines, *losses(every), "", *LOSSES.splitlines()]


def main() -> None:
    """Rewrites the page from the rows of the last full run, after a change to the page's code alone."""
    kept = json.loads((FOLDER / "peers.json").read_text())
    write_page(kept["facts"], kept["rows"])


if __name__ == "__main__":
    main()
