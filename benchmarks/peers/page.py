"""The page of the comparison, from its rows alone: question, method, tables, what they mean, where others are ahead.

`python -m benchmarks.peers.page` writes it again from the rows that are kept.
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
QUESTIONS = {
    "a": ("Cost of a checkpoint over state size", "Does the cost follow what changed, or what is there?"),
    "b": ("Churn", "From which share of changed keys on does another way win?"),
    "c": ("Key choice", "Do hot keys, or keys that lie together, change the order?"),
    "d": (
        "A scheduled run in a fresh process",
        "How long from the start of a process to durable rows? Here upkeep is what it then takes to end. Each starts\n"
        "its driver as its user would: jars on the class path, no page, 4 GB. Tidemark's JVM compiles late and maps\n"
        "the archive of classes that `make setup-driver` makes\n"
        "([ADR 0020](../adr/0020-a-driver-maps-its-classes.md)); *with our JVM's options* is the query with both, and\n"
        "an archive of its own run.",
    ),
    "h": ("An idle run", "What does a run cost that finds nothing?"),
}
METHOD = """\
Every system reads the same records of one Kafka topic (4 partitions, JSON, 16-byte keys that spread like hashes) and
keeps count, sum and maximum per key. 5 % of the records have a key that was never seen, 1 % delete their key. A run
begins when all records of a batch are in the topic, and ends when the new state is durable. In a round the systems take
turns, each round begins with another one, and the first round does not count unless it is the only one. At the end the
state of every system was compared with numpy's, row by row: one wrong row and there is no page.

- *Tidemark* compacts after its runs; that is timed apart, as upkeep. *Own driver* shares one warm JVM of two cores with
  all Spark peers, which compiles by Java's own thresholds; *Connect server* is the embedded stack's own way, a JVM that
  nobody else uses. Either had more than twenty runs that no table shows.
- *Structured Streaming* runs a new query with `Trigger.AvailableNow` per batch, state in RocksDB, rows not counted. It
  was measured with whole snapshots and with a change log (`minDeltasForSnapshot=1`, `unloadOnCommit`). Its sink appends
  changed rows to a Delta table, or merges them.
- *Delta MERGE* folds the range in a batch and merges it into a table, which is the state. *Full overwrite* writes the
  whole table anew.
- *Flink* is resident: one JVM, two task slots, RocksDB, incremental checkpoints, triggered over REST. Its connector for
  Kafka is not in the package from PyPI, so a source of 100 lines over Kafka's own client takes its place. Seconds are
  from the first record to the completed checkpoint. It has no sink.
- Bytes are those of the files that a run has added to the durable folder of the system or changed there, results
  included; the median over rounds."""
STORAGE = """\
Nobody deleted anything: every version of a table, the last 30 checkpoints of Flink and the last hundred batches of a
query can be gone back to. The bytes are those of the whole durable folder; the last column is an extrapolation, for
every size and system. What was measured of that many points is in a section of its own."""
RESTORED = """\
One point is kept, a batch follows, the state goes back to the point, and a fork of it begins beside. Once each. A run
after the restore and one of the fork came to numpy's state. For Structured Streaming it is a procedure of steps: copy
the query's checkpoint folder, note the table's version; later copy it back and clone that version, because Delta's sink
skips batches that a restored table remembers (delta#1813). For Delta it is RESTORE or a shallow clone and the offsets,
for as long as nobody vacuums. Flink's savepoint is in RocksDB's own format; restore and fork start a JVM."""
NO_FLINK = "Flink was not there and did not take part (`make setup-flink`)."
LOSSES = """\
- A resident job needs no start: where a checkpoint every few seconds is wanted, take Flink. Its price is a process that
  always runs.
- Tidemark's state and an appended table must be resolved before they are read as a whole; a merged or overwritten table
  is read as it is ([state costs](state-costs.md)).
- Tidemark's cost follows the changed keys; the table of churn shows what that means when many change.
- All ran on one machine with a local disk; a bucket was not measured."""


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
        "# Against what one would take instead",
        "",
        told(facts),
        "",
        "Question: what does it cost to bring keyed state up to date with a batch of changes and to keep it durable,",
        "with Tidemark and with its alternatives, on the same machine in the same run?",
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
    return [*lines, "", "## What was checked", "", *_checks(rows), "", "## Where others are ahead", "", *_losses(rows)]


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
        f"where Spark counts the same range, by the same options, in {count:.2f} s:",
        f"{count / read:.2f} of the bare speed (medians of {len(found)} rounds).",
        "A small checkpoint's query folds and writes as well.",
    ]


def _storage(rows: Iterable[Row]) -> list[str]:
    """What each run has left, by (keys, kind), from the folder's size after the load and after the last run."""
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
    """Without the round that warms up, unless there is only one."""
    return [r for r in rows if r["round"] > 0] or list(rows)


def _median(rows: Sequence[Row], what: str) -> float:
    return float(statistics.median(r[what] for r in rows))


def _table(rows: Sequence[Row]) -> list[str]:
    lines = [
        "| keys | updates | choice | system | rounds | median s | to Tidemark | 95 % interval | mean upkeep s | kB |",
        "|---:|---:|---|---|---:|---:|---:|---|---:|---:|",
    ]
    for (size, updates, choice), kinds in _groups(rows).items():
        ours = [r["seconds"] for r in kinds[OURS]]
        for kind, found in kinds.items():
            seconds = [r["seconds"] for r in found]
            low, high = interval(seconds, ours)
            lines.append(
                f"| {size:,} | {updates:,} | {choice} | {TITLES[kind]} | {len(found)} |"
                f" {statistics.median(seconds):.2f} |"
                f" {statistics.median(seconds) / statistics.median(ours):.2f} | {low:.2f} to {high:.2f} |"
                f" {statistics.mean(r['upkeep_seconds'] for r in found):.2f} | {_median(found, 'bytes') / 1e3:,.0f} |"
            )
    return lines


def _meaning(rows: Sequence[Row]) -> list[str]:
    """Who was quickest and what growth costs, as the figures say it."""
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
    """Between which shares of changed keys another system overtakes; the middle share is the first section's."""
    size = _of(rows, "b")[0]["size"]
    groups = _groups([r for r in (*_of(rows, "a"), *_of(rows, "b")) if r["size"] == size])
    medians = {
        asked[1]: {kind: _median(found, "seconds") for kind, found in kinds.items()} for asked, kinds in groups.items()
    }
    lines = []
    for few, many in itertools.pairwise(sorted(medians)):
        for kind in medians[few].keys() & medians[many].keys() - {OURS}:
            if medians[few][kind] >= medians[few][OURS] and medians[many][kind] < medians[many][OURS]:
                lines.append(
                    f"- Between {few / size:.1%} and {many / size:.1%} {TITLES[kind]} overtakes {TITLES[OURS]}."
                )
    return sorted(lines)


def _checks(rows: Iterable[Row]) -> list[str]:
    done = [r for r in rows if "checked" in r]
    total = sum(r["checked"]["keys"] for r in done)
    return [f"States: {len(done)}, with {total:,} rows in all; every row was numpy's."]


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
    """Writes the page again from the rows of the last full run, after a change of the page alone."""
    kept = json.loads((FOLDER / "peers.json").read_text())
    write_page(kept["facts"], kept["rows"])


if __name__ == "__main__":
    main()
