"""The pages about publications: bytes, seconds and targets, computed from the rows of both programs."""

import json
import statistics
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.facts import told
from benchmarks.publications.mirroring import EACH, MIRRORED, PLAIN, SAME, TENTH
from benchmarks.report import FOLDER, Rows, interval

Data = Mapping[str, Any]
"""The facts of a run."""
TITLES = {
    PLAIN: "checkpoint, no publication declared",
    MIRRORED: "checkpoint, two mirrors declared",
    EACH: "publication",
    "merge": "Delta MERGE of the changed rows",
    "stream": "Structured Streaming, MERGE in `foreachBatch`",
}
METHOD = """\
Each round writes records for 1 % of the keys into one topic (4 partitions, JSON, 16-byte keys that spread like hashes):
uniform choice, 5 % new keys, 1 % deletes. Further rounds change the same 1 % each time, in the second pipeline only.
The state has three fields per key. All parties run in one process over one warm Spark driver of two cores. They take
turns, and each round begins with another one. Round 0 does not count.

- *The changed rows alone*: the rows of all keys that changed and still live, ordered by key, as one Parquet file with
  the settings of a mirror. All ratios of bytes are relative to them.
- *Tidemark* completes a checkpoint in two pipelines over the topic. One of them declares two mirrors with deletion
  vectors; one is published after each checkpoint, the other one after ten. The bytes of a publication are all files
  that it adds to the mirror and to the warehouse: data, deletion vectors, log, records. Its seconds include finding the
  difference between the two checkpoints. It needs no Spark.
- *Delta MERGE* reads the changed rows, and the keys that are gone, from a Parquet file. Nothing is charged for this
  file, so the MERGE does the second half of a publication's work.
- *Structured Streaming* runs a query with `Trigger.AvailableNow`. Its `foreachBatch` folds the batch and merges it into
  a table, as its documentation shows. That is all of the work: compare it with a checkpoint and its publication
  together. A batch that is repeated after a crash would count twice; protection against that would cost more.
- Both peers have `delta.enableDeletionVectors` and compress with zstd, as mirrors do. Their tables begin with the same
  rows, which are written untimed."""
UPKEEP = """\
Question: what does a publication of 1 % changed keys write, if merged and rewritten files count? A publication merges
small files, and rewrites files of mostly dead rows. Ten publications do not show this, so this program publishes one
uniform change after the other, until the files of the first publication are rewritten. Only the writer of mirrors takes
part, so the bytes do not depend on the machine. They are relative to the changed rows alone, written as one Parquet
file. `data` is these rows, and rows that were written again. `stored` is the number of rows in all files per live row:
readers skip the dead ones. A row of three fields has a key of 16 bytes, a count, a sum and a time; one of eight fields
also has five random numbers below a million."""
SPANS = ((1, 10), (11, 30), (31, 60), (61, 90), (91, 120), (121, 150))
"""Publications of the rows of the table of upkeep."""
MEGA = 1e6


def write_page(facts: Data, rows: Rows, folder: Path = FOLDER) -> None:
    """Writes `publications.json` and `.md` (`publications-quick…` for a quick run)."""
    _write(folder, "publications-quick" if _is_quick(facts) else "publications", facts, rows)


def write_upkeep(facts: Data, rows: Rows, folder: Path = FOLDER) -> None:
    """Writes `publication-upkeep.json` and `.md` (`publication-upkeep-quick…` for a quick run)."""
    _write(folder, "publication-upkeep-quick" if _is_quick(facts) else "publication-upkeep", facts, rows)


def _write(folder: Path, name: str, facts: Data, rows: Rows) -> None:
    (folder / f"{name}.json").write_text(json.dumps({"facts": dict(facts), "rows": list(rows)}, indent=1) + "\n")
    render = upkeep_page if "upkeep" in name else page
    (folder / f"{name}.md").write_text(render(name, facts, rows))


def _is_quick(facts: Data) -> bool:
    return "quick" in str(facts["command"])


def upkeep_page(name: str, facts: Data, rows: Rows) -> str:
    """Renders the page about upkeep as Markdown."""
    lines = [
        "# Bytes of publications with their upkeep",
        "",
        told(facts),
        "",
        *UPKEEP.splitlines(),
        "",
        f"The table has {facts['keys']:,} keys. Data: [{name}.json]({name}.json).",
        *(["", facts["note"]] if "note" in facts else []),
        *("", "## Targets and results", "", "| figure | target | result | |", "|---|---:|---:|---|"),
        *(
            _target(f"bytes of {len(found)} publications, relative to the changed rows, {width}", 3, _aged_ratio(found))
            for width in _widths(rows)
            if (found := _aged(rows, width))
        ),
        *("", "## Bytes by age", "", *_ages(rows)),
        *("", "## Checks", ""),
        *_wrapped(
            f"{_aged_check(rows)} A publication took"
            f" {statistics.median(r['cpu_seconds'] for r in rows if 'changed' in r):.1f} s of CPU (median), without the"
            " difference between two checkpoints."
        ),
    ]
    return "\n".join(lines) + "\n"


def _aged_check(rows: Rows) -> str:
    checked = [r["checked"] for r in rows if "checked" in r]
    if not checked:
        return "The run was stopped before its check: no row was compared."
    return f"Rows: {sum(checked):,} in all at the end; every row equalled numpy's."


def page(name: str, facts: Data, rows: Rows) -> str:
    """Renders the page about one run of all parties as Markdown."""
    lines = [
        "# Cost of a publication",
        "",
        told(facts),
        "",
        *_wrapped(
            f"Question: what does it cost to publish a state of {facts['keys']:,} keys as a plain Delta table if 1 % of"
            " them have changed, compared with Delta's MERGE and Structured Streaming for the same changes in one run?"
            f" Data: [{name}.json]({name}.json)."
        ),
        *("", "## Method", "", *METHOD.splitlines()),
        *("", "## Targets and results", "", *_targets(rows)),
        *("", "## Bytes", "", *_bytes(rows)),
        *("", "## Seconds", "", *_seconds(rows, facts["load"])),
        *("", "## Every tenth checkpoint", "", *_tenth(rows)),
        *("", "## Checks", "", *_checks(rows)),
    ]
    return "\n".join(lines) + "\n"


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 120, break_long_words=False, break_on_hyphens=False)


def select(rows: Rows, kind: str, first: int = 1) -> list[Mapping[str, Any]]:
    """The rows of a kind from some round on; by default those that count."""
    return [r for r in rows if r["kind"] == kind and r.get("round", -1) >= first]


def total(rows: Rows, what: str = "bytes") -> float:
    """The sum of a figure."""
    return float(sum(r[what] for r in rows))


def _seconds_of(rows: Rows, kind: str) -> list[float]:
    return [r["seconds"] for r in select(rows, kind)]


def _ratio(rows: Rows, kind: str) -> float:
    return total(select(rows, kind)) / total(select(rows, "changed"))


def _aged(rows: Rows, width: str, first: int = 1, last: int | None = None) -> list[Mapping[str, Any]]:
    """The publications of a width, among those with some numbers."""
    found = [r for r in rows if r["width"] == width and "publication" in r]
    return [r for r in found if first <= r["publication"] <= (last or len(found))]


def _aged_ratio(rows: Rows) -> float:
    return sum(total(rows, what) for what in ("data", "vectors", "log")) / total(rows, "changed")


def _targets(rows: Rows) -> list[str]:
    low, high = interval(_seconds_of(rows, MIRRORED), _seconds_of(rows, PLAIN))
    declared = statistics.median(_seconds_of(rows, MIRRORED)) / statistics.median(_seconds_of(rows, PLAIN))
    ten = select(rows, EACH)
    return [
        "| figure | target | result | |",
        "|---|---:|---:|---|",
        _target(f"bytes of {len(ten)} publications, relative to the changed rows", 3, _ratio(rows, EACH)),
        f"| seconds of a checkpoint with publications declared, relative to one without (95 % interval) | ≤ 1 |"
        f" {declared:.2f} ({low:.2f} to {high:.2f}) | {'met' if low <= 1 else '**missed**'} |",
        *_tenth_targets(rows, "the same keys change", SAME),
        *_tenth_targets(rows, "uniform choice", ""),
    ]


def _tenth_targets(rows: Rows, which: str, of: str) -> Iterator[str]:
    ten, one = select(rows, EACH + of), select(rows, TENTH + of)
    for what in ("seconds", "bytes"):
        figure = f"{what} of one publication after {len(ten)} checkpoints, relative to {len(ten)} publications, {which}"
        yield _target(figure, 1 / len(ten), total(one, what) / total(ten, what))


def _target(figure: str, target: float, result: float) -> str:
    return f"| {figure} | ≤ {target:g} | {result:.2f} | {'met' if round(result, 2) <= target else '**missed**'} |"


def _bytes(rows: Rows) -> list[str]:
    changed, ours = select(rows, "changed"), select(rows, EACH)
    data, vectors, log, records = (total(ours, what) / total(changed) for what in ("data", "vectors", "log", "records"))
    (load,) = (r for r in rows if r["kind"] == EACH and r.get("round") == -1)
    (optimized,) = select(rows, "optimize")
    checkpoint = total(select(rows, PLAIN)) / total(changed)
    last = ours[-1]["bytes"] / changed[-1]["bytes"]
    return [
        f"Rounds 1 to {len(ours)}. The changed rows have {total(changed) / len(changed) / 1e3:,.0f} kB a round.",
        "",
        "| relative to the changed rows | data | deletion vectors | log | records | all |",
        "|---|---:|---:|---:|---:|---:|",
        f"| {TITLES[EACH]} | {data:.2f} | {vectors:.2f} | {log:.2f} | {records:.3f} | {_ratio(rows, EACH):.2f} |",
        *(f"| {TITLES[kind]} | | | | | {_ratio(rows, kind):.2f} |" for kind in ("merge", "stream")),
        "",
        *_wrapped(
            f"The first publication writes all rows: {load['bytes'] / MEGA:,.1f} MB in {load['seconds']:.1f} s. Vectors"
            f" grow from one publication to the next; the last of these wrote {last:.2f} times the changed rows."
            " OPTIMIZE, the upkeep that the merged table needs some day, wrote"
            f" {optimized['bytes'] / MEGA:,.1f} MB in {optimized['seconds']:.1f} s after these rounds."
            f" A checkpoint itself writes {checkpoint:.2f} times the changed rows into the warehouse."
            " [With their upkeep](publication-upkeep.md), publications write more."
        ),
    ]


def _widths(rows: Rows) -> list[str]:
    return list(dict.fromkeys(r["width"] for r in rows))


def _ages(rows: Rows) -> list[str]:
    lines = [
        "| row | publications | changed rows kB | data | deletion vectors | log | all | most files | most stored |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for width in _widths(rows):
        count = len(_aged(rows, width))
        for first, last in (*(span for span in SPANS if span[1] <= count), (1, count)):
            found = _aged(rows, width, first, last)
            changed = total(found, "changed")
            parts = " | ".join(f"{total(found, what) / changed:.2f}" for what in ("data", "vectors", "log"))
            most = f"{max(r['files'] for r in found)} | {max(r['stored'] for r in found):.2f}"
            lines.append(
                f"| {width} | {first} to {last} | {changed / len(found) / 1e3:,.0f} | {parts} |"
                f" {_aged_ratio(found):.2f} | {most} |"
            )
    return lines


def _seconds(rows: Rows, load: Sequence[float]) -> list[str]:
    ours = _seconds_of(rows, EACH)
    both = [a + b for a, b in zip(_seconds_of(rows, MIRRORED), ours, strict=True)]
    merge, stream = _seconds_of(rows, "merge"), _seconds_of(rows, "stream")
    upkeep = statistics.mean(r["upkeep_seconds"] for r in select(rows, MIRRORED))
    return [
        f"Rounds 1 to {len(ours)}. Load of the machine: {load[0]} at the start and {load[3]} at the end.",
        "",
        "| | median s | slowest s | to a publication | 95 % interval | median CPU s |",
        "|---|---:|---:|---:|---|---:|",
        *(f"{_line(TITLES[kind], _seconds_of(rows, kind), ours)} {_cpu(rows, kind):.2f} |" for kind in TITLES),
        f"{_line('checkpoint and its publication', both, ours)} |",
        "",
        f"- The MERGE takes {_times(merge, ours)} times as long as a publication.",
        f"- Structured Streaming takes {_times(stream, both)} times as long as a checkpoint and its publication.",
        f"- Compactions of the warehouse took {upkeep:.2f} s per checkpoint on average, and are in no other figure.",
    ]


def _cpu(rows: Rows, kind: str) -> float:
    """Processor time of this process, the JVM and the broker, which other programs of the machine change less."""
    return float(statistics.median(r["cpu_seconds"] for r in select(rows, kind)))


def _line(title: str, seconds: Sequence[float], base: Sequence[float]) -> str:
    low, high = interval(seconds, base)
    median = statistics.median(seconds)
    ratio = median / statistics.median(base)
    return f"| {title} | {median:.2f} | {max(seconds):.2f} | {ratio:.2f} | {low:.2f} to {high:.2f} |"


def _times(seconds: Sequence[float], base: Sequence[float]) -> str:
    low, high = interval(seconds, base)
    return f"{statistics.median(seconds) / statistics.median(base):.2f} ({low:.2f} to {high:.2f})"


def _tenth(rows: Rows) -> list[str]:
    changed, (together,) = select(rows, "changed"), select(rows, "changed-tenth")
    lines = ["| | seconds | kB | data | deletion vectors | log and records |", "|---|---:|---:|---:|---:|---:|"]
    for which, of in (("uniform choice", ""), ("the same keys", SAME)):
        ten, one = select(rows, EACH + of), select(rows, TENTH + of)
        for title, found in ((f"{len(ten)} publications", ten), ("one, after the same checkpoints", one)):
            rest = total(found, "log") + total(found, "records")
            kinds = " | ".join(f"{n / 1e3:,.0f}" for n in (total(found, "data"), total(found, "vectors"), rest))
            seconds, kilobytes = total(found, "seconds"), total(found) / 1e3
            lines.append(f"| {which}: {title} | {seconds:.2f} | {kilobytes:,.0f} | {kinds} |")
    return [
        *lines,
        "",
        *_wrapped(
            f"The changed rows of the single rounds are {total(changed, 'rows'):,.0f}, {total(changed) / 1e3:,.0f} kB;"
            f" those of all rounds together are {together['rows']:,}, {together['bytes'] / 1e3:,.0f} kB. Uniform choice"
            " rarely meets a key twice, so one publication has nearly all of these rows to write, too: bytes cannot be"
            f" below {together['bytes'] / total(select(rows, EACH)):.2f} of those of single publications. It saves the"
            " deletion vectors, the log, and the search through all keys. If the same keys change each time, it writes"
            " them once."
        ),
    ]


def _checks(rows: Rows) -> list[str]:
    done = [r["checked"] for r in rows if "checked" in r]
    return _wrapped(
        f"Tables: {len(done)}, with {sum(done):,} rows in all; every row equalled numpy's. They are the state, both"
        " mirrors, the merged and the streamed table, and both mirrors again after the rounds with the same keys."
    )


def main() -> None:
    """Rewrites both pages from the rows of the last full runs."""
    for name, write in (("publications", write_page), ("publication-upkeep", write_upkeep)):
        kept = json.loads((FOLDER / f"{name}.json").read_text())
        write(kept["facts"], kept["rows"])


if __name__ == "__main__":
    main()
