"""`python -m benchmarks.tables`, the end of `make bench`: writes the tables of pages whose text is written by hand.

A page has a pair of comments around each table, `<!-- NAME -->` and `<!-- /NAME -->`. A test compares the pages with
the data.
"""

import json
import re
import statistics
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from benchmarks.report import FOLDER

PAGES = ("README.md", "state-costs.md", "history-pages.md", "retention-costs.md", "../scale.md", "../../README.md")


def main() -> int:
    """Rewrites the tables of all pages."""
    for name in PAGES:
        path = FOLDER / name
        path.write_text(rewritten(path.read_text()))
    return 0


def rewritten(page: str) -> str:
    """Returns a page with its tables made again from the data.

    Raises:
        KeyError: it names a table that does not exist.
    """
    return re.sub(
        r"<!-- ([a-z0-9-]+) -->\n.*?\n<!-- /\1 -->",
        lambda found: f"<!-- {found[1]} -->\n{TABLES[found[1]]()}\n<!-- /{found[1]} -->",
        page,
        flags=re.DOTALL,
    )


def _data(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return found


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], texts: Collection[int] = (0,)) -> str:
    """Returns a table whose columns are numbers, except for some, by their position."""
    lines = [f"| {' | '.join(row)} |".replace("|  |", "| |") for row in (head, *rows)]
    kinds = ("---" if at in texts else "---:" for at in range(len(head)))
    return "\n".join([lines[0], f"|{'|'.join(kinds)}|", *lines[1:]])


LARGE = {
    "plain": "plain Spark: `from_json`, grouped, written as Parquet",
    "fold": "Tidemark, one fold",
    "many": "Tidemark, three folds and a process",
    "append": "Structured Streaming, results appended",
    "flink": "Flink, always running",
}


def large_batches() -> str:
    """Two million records, by system."""
    found = _data("large-batches")["medians"]
    columns = ("seconds", "to_plain", "first_to_median")
    rows = [
        [title, *(f"{found[kind][name]:.2f}" for name in columns)] for kind, title in LARGE.items() if kind in found
    ]
    return _table(("system", "median s", "to the plain query", "first round to the median"), rows)


def long_run() -> str:
    """400 checkpoints in a row."""
    data = _data("long-run")
    beside = data["beside_rewrites"]
    rewrites = " and ".join(f"{seconds:.1f}" for seconds in data["rewrites_of_the_base_s"])
    per_million = 2.5 * data["keys"] / 1_000_000
    rows = [
        ("median of a checkpoint, s", f"{data['median_s']:.2f}", ""),
        ("95th percentile, s", f"{data['p95_s']:.2f}", ""),
        ("mean with every level fold and rewrite of the base, s", f"{data['mean_with_compactions_s']:.2f}", ""),
        ("the same, relative to the median", f"{data['mean_to_median']:.2f}", "≤ 1.25"),
        ("rewrites of the base, s", rewrites, f"≤ {per_million:.0f}"),
        ("level folds", f"{data['level_folds']}", ""),
        ("bytes written in all, relative to those of the runs", f"{data['write_amplification']:.1f}", "reported"),
        (
            "95th percentile while the base is rewritten again and again, relative to an idle machine",
            f"{beside['p95_to_alone']:.2f}",
            "≤ 1.5",
        ),
    ]
    return _table(("figure", "result", "target"), rows)


def bucket() -> str:
    """A checkpoint in a bucket."""
    rows = [
        (place, f"{row['seconds']:.2f}", f"{row['to_folder']:.2f}", f"{row['requests']:.0f}", f"{row['most_requests']}")
        for place, row in _data("bucket")["medians"].items()
    ]
    return _table(("warehouse", "s", "to the folder", "requests", "most requests"), rows)


SMALL = {
    "one_fold": "a fold, in a running process",
    "five_operators": "the demo's pipeline with five operators and a gate, there",
    "run": "`tidemark run` of the fold",
    "state_show": "`tidemark state show`, one key",
    "help": "`tidemark --help`",
}


def small_batches() -> str:
    """20,000 flights, by pipeline and command."""
    found = _data("small-batches")["medians"]
    return _table(("what", "median s"), [(title, f"{found[name]:.2f}") for name, title in SMALL.items()])


VERBS = {
    "load": "first checkpoint of a fold, a million keys",
    "load_process": "first checkpoint of a process, a million keys",
    "small": "20,000 updates, a fold",
    "medium": "200,000 updates, a fold",
    "large": "two million updates, a fold",
    "process": "20,000 updates, a process",
    "compact": "compaction of everything",
    "resolve": "full resolve without Spark",
    "show": "`tidemark state show`, one key",
}


def before_and_after() -> str:
    """The same work by two trees."""
    found = _data("before-and-after")["medians"]
    rows = [(t, *(f"{found[verb][name]:.2f}" for name in ("before", "after", "ratio"))) for verb, t in VERBS.items()]
    return _table(("work", "before, s", "after, s", "ratio"), rows)


def state_costs() -> str:
    """Reading and compacting a state of 8 M keys."""
    data, rate = _data("state-costs"), _data("process-rate")["records_per_s"]

    def seconds(name: str, more: str = "") -> str:
        return f"{data[name]:.2f}{more}"

    def to_scan(name: str) -> str:
        return seconds(name, f" ({data[f'{name}_to_scan']:.1f} × the scan)")

    def to_copy(name: str) -> str:
        return seconds(name, f" ({data[f'{name}_to_copy']:.1f} × the copy)")

    sql = data["resolve_to_scan"]
    rows = [
        ("plain Delta scan of the base in Spark, same columns", seconds("scan"), ""),
        (
            "full resolve in Spark's workers, `read_state(...)`, the default with `local[N]`",
            to_scan("resolve_in_workers"),
            "≤ 2.5 × the scan",
        ),
        (
            'full resolve by Spark\'s SQL, `read_state(..., by="spark")`',
            to_scan("resolve"),
            f"≤ 2.5 × the scan{': **missed**' if sql > 2.5 else ''}",
        ),
        *_one_key(data),
        (
            "full resolve by DuckDB, without Spark, as in `tidemark state`",
            seconds("resolve_without_spark", f" ({data['resolve_without_spark'] / data['scan']:.1f} × Spark's scan)"),
            "≤ 2.5 × the scan",
        ),
        ("the same rows reduced in memory, by Arrow's hash aggregation", seconds("reduce_in_memory"), "reported (T4)"),
        ("point read of one key, without Spark", seconds("point"), "≤ 1"),
        ("copy of all stored rows to one file, by DuckDB", seconds("copy"), ""),
        ("`tidemark state export`: resolved rows", to_copy("export"), "≤ 2 × the copy"),
        ("`tidemark export`: stored and resolved rows", to_copy("export_folder"), "reported"),
        ("level-1 compaction of 400,000 rows in twenty runs", seconds("level_1"), "≤ 2 for 320,000 rows"),
        (
            "rewrite of the whole base and the runs",
            seconds("full", f" ({data['full_per_million_keys']:.1f} per million keys)"),
            "≤ 2.5 per million keys",
        ),
        ("records per second of a process operator", f"{rate:,}", "≥ 150,000"),
    ]
    return _table(("figure", "seconds", "target"), rows)


def _one_key(data: Mapping[str, float]) -> list[tuple[str, str, str]]:
    """The row of one key in Spark; none in data that was measured before there was `keys=`."""
    if "one_in_workers" not in data:
        return []
    shown = f"{data['one_in_workers']:.2f} (by SQL {data['one_by_sql']:.2f})"
    return [("one key in Spark's workers, `read_state(..., keys={...})`", shown, "reported")]


STEPS = {
    "fold": "checkpoints of four million records each",
    "update": "a checkpoint of 20,000 updates",
    "compact": "`compact --full`",
    "savepoint": "`savepoint create`",
    "resolve": "full resolve by Spark's SQL",
    "hash": "`state hash`",
    "export": "`state export`",
    "show": "`state show`, one key",
    "retention": "`retention apply`",
}


def memory() -> str:
    """Seconds and memory at two sizes of state, by step."""
    found = {(row["pipeline"], row["step"]): row for row in _data("memory")["rows"]}
    sizes = sorted({row["keys"] for row in found.values()})
    head = ["step"] + [f"s, {keys // 1_000_000} M keys" for keys in sizes]
    head += [f"MiB of {place}, {keys // 1_000_000} M" for place in PLACES.values() for keys in sizes]
    rows = []
    for kind, operator in {"bench-": "fold", "bench-process-": "process"}.items():
        for step, title in STEPS.items():
            of = [found.get((f"{kind}{keys}", step)) for keys in sizes]
            cells = ["" if row is None else f"{row['seconds']:,.1f}" for row in of]
            for place in PLACES:
                cells += ["" if row is None else f"{row['peak_mib'].get(place, 0):,}" for row in of]
            rows.append([f"{operator}: {title}", *cells])
    return _table(head, rows)


PLACES = {"spark": "Spark", "workers": "its Python workers", "client": "the command"}


EVENT_TIME = {
    "fold still": ("a fold", "", ""),
    "windows still": ("a fold with windows, none closes", "windows_to_fold", "a fold"),
    "windows due": ("10,000 windows close", "closing_to_still", "one that closes none"),
    "process still": ("a process", "", ""),
    "timers still": ("a process with timers, none fires", "timers_to_process", "a process"),
    "timers due": ("10,000 timers fire", "firing_to_process", "a process in the same rounds"),
}


def event_time() -> str:
    """Checkpoints with windows and timers."""
    data = _data("event-time")
    rows = []
    for name, (title, ratio, other) in EVENT_TIME.items():
        times = f"{data['ratios'][ratio]:.2f} times {other}" if ratio else ""
        rows.append((title, f"{data['median_s'][name]:.2f}", times))
    return _table(("checkpoint", "seconds", "ratio"), rows, texts=(0, 2))


def closed_history() -> str:
    """Checkpoints after many windows have closed."""
    data = _data("closed-history")
    head = ("closed before", "39,000 windows close", "with compactions", "none closes", "with compactions")
    ways = [(kind, of) for kind in ("due", "still") for of in ("median_s", "mean_with_compactions_s")]
    rows = [(f"{n:,}", *(f"{data[of][kind][str(n)]:.2f}" for kind, of in ways)) for n in data["sizes"]]
    return _table(head, rows, texts=())


HISTORY = {
    "overview": "overview: counts, percentiles, latest, health, 25 lines",
    "last page of the history": "the last page of the history",
    "search": "a search that meets one id",
    "series of 1000": "1,000 points of the charts",
    "timelines": "timelines",
    "details": "details of a checkpoint",
    "graph": "its lineage",
}


def history_pages() -> str:
    """Pages over many checkpoints."""
    found = _data("history-pages")["median_ms"]
    return _table(("", "ms"), [(title, str(found[name])) for name, title in HISTORY.items()])


def bucket_pages() -> str:
    """The same pages in a bucket."""
    data = _data("bucket-pages")
    rows = [(name, f"{ms['first']:,}", f"{ms['later']:,}") for name, ms in data["answers_ms"].items()][1:]
    return _table((f"{data['wait_ms']} ms per request", "first answer, ms", "while the history is read, ms"), rows)


def first_answers() -> str:
    """Pages in a browser, on a disk and in a bucket."""
    places = _data("first-answers")["places"]
    titles = [f"{place}, {which}" for place in places for which in ("first", "later")]
    rows = [
        (name, *(f"{places[place][name][f'{which}_own_ms']:,}" for place in places for which in ("first", "later")))
        for name in next(iter(places.values()))
    ]
    return _table(("ms since Airflow asked for the page's files", *titles), rows)


def retention_costs() -> str:
    """Plans and sweeps of retention."""
    data = _data("retention-costs")
    count, files, logs, gone = (data[n] for n in ("checkpoints", "files", "deleted_log_files", "deleted_files"))
    rows = [
        (
            f"a plan by a context that has read nothing: {count:,} manifests, {files:,} files,"
            " every commit of every log",
            f"{data['plan_s']:.2f}",
        ),
        (
            "the plan again, one checkpoint later: the new commits, and every manifest",
            f"{data['plan_after_one_more_checkpoint_s']:.2f}",
        ),
        (
            f"a sweep that releases {data['released']:,} checkpoints, two durable objects each",
            f"{data['sweep_that_releases_s']:.1f}",
        ),
        (f"the sweep that deletes {gone:,} files and {logs:,} files of logs", f"{data['sweep_that_deletes_s']:.1f}"),
        ("a plan after that", f"{data['plan_after_the_sweep_s']:.2f}"),
        (
            f"the same {gone:,} files by `VACUUM ... USING INVENTORY`, two tables, in a warm Spark",
            f"{data['by_vacuum']['s']:.1f}",
        ),
    ]
    return _table(("", "seconds"), rows)


def keys() -> str:
    """What grows with the number of keys."""
    rows, costs = _data("checkpoint-cost")["rows"], _data("state-costs")

    def median(pipeline: str) -> float:
        found = (r["seconds"] for r in rows if r["pipeline"] == pipeline and r["round"] >= 0)
        return float(statistics.median(found))

    def first(pipeline: str) -> float:
        return float(sum(r["seconds"] for r in rows if r["pipeline"] == pipeline and r["round"] < 0))

    fold = median("bench-8000000") / median("bench-500000")
    process = median("bench-process-8000000") / median("bench-process-2000000")
    merged = [
        [r["compact_seconds"] for r in rows if r["pipeline"] == pipeline and r.get("whole") is False]
        for pipeline in ("bench-500000", "bench-8000000")
    ]
    levels = [statistics.median(found) for found in merged]
    more = [(first(f"{kind}8000000") - first(f"{kind}2000000")) / 6 for kind in ("bench-", "bench-process-")]
    sizes = {r["pipeline"]: r["full_bytes"] / r["size"] for r in rows if re.fullmatch(r"bench-\d+", r["pipeline"])}
    by_sql, in_workers = costs["resolve"] / 8, costs["resolve_in_workers"] / 8
    return _table(
        ("", "slope"),
        [
            ("a fold's checkpoint", f"× {fold:.2f} for 16 times the keys"),
            (
                "a process's checkpoint, which looks up the keys that it touches",
                f"× {process:.2f} for 4 times the keys",
            ),
            ("a first checkpoint, per million records", f"{more[0]:.1f} s with a fold, {more[1]:.1f} s with a process"),
            ("merging levels in a compaction", f"× {levels[1] / levels[0]:.1f} for 16 times the keys"),
            (
                "the rewrite of a whole base",
                f"{costs['full_per_million_keys']:.1f} s per million keys, on one processor",
            ),
            (
                "reading all of a state, by Spark",
                f"{by_sql:.1f} s per million keys, {in_workers:.1f} s with its workers, the default with `local[N]`",
            ),
            ("one key, without Spark", f"{costs['point']:.2f} s at 8 million"),
            ("savepoint, fork, restore", "× 1"),
            ("bytes of these states", f"{min(sizes.values()):.0f} to {max(sizes.values()):.0f} per key"),
        ],
        texts=(0, 1),
    )


SYSTEMS = {
    "tidemark": "Tidemark",
    "append": "Structured Streaming, results appended",
    "merge": "Structured Streaming, results merged",
    "delta-merge": "Delta MERGE, copy-on-write",
    "delta-vectors": "Delta MERGE, deletion vectors",
    "delta-rs": "delta-rs MERGE, without a JVM",
    "flink": "Flink, always running",
}


def costs() -> str:
    """The README's comparison with other systems: checkpoints of 2 M keys, then 0.5 M keys over many checkpoints."""
    rows = _data("peers")["rows"]

    def found(kind: str, **asked: object) -> list[dict[str, Any]]:
        return [r for r in rows if r["kind"] == kind and all(r.get(n) == value for n, value in asked.items())]

    def rounded(size: float) -> str:
        return f"{size / 1e6:.1f}" if size < 1e7 else f"{size / 1e6:.0f}"

    def cells(kind: str) -> list[str]:
        few = [r for r in found(kind, scenario="a", size=2_000_000) if r.get("round", -1) >= 1]
        many = sorted(
            (r for r in found(kind, scenario="f", size=500_000) if r.get("round", -1) >= 0), key=lambda r: r["round"]
        )
        made = ["–"] * 6
        if few:
            made[0] = f"{statistics.median(r['seconds'] for r in few):.2f}"
            made[1] = rounded(statistics.median(r["bytes"] for r in few))
        if many:
            made[2] = f"{statistics.mean(r['seconds'] + r['upkeep_seconds'] for r in many):.2f}"
            made[3] = rounded((many[-1]["folder_bytes"] - many[0]["folder_bytes"]) / (len(many) - 1))
        made[4] = next((f"{r['seconds']:.2f}" for r in found(kind, size=500_000, verb="restore")), made[4])
        made[5] = next((f"{r['left'] / 1e6:.0f}" for r in found(kind, kept=30)), made[5])
        return made

    head = ("", "a checkpoint, s", "writes, MB", "mean with upkeep, s", "the folder grows by, MB", "go back, s")
    return _table((*head, "30 points kept, MB"), [(title, *cells(kind)) for kind, title in SYSTEMS.items()])


TRANSFORMS = {
    "same": "each row as it is",
    "one_percent": "another value in 1 % of the rows",
    "all_values": "another value in every row",
    "all_keys": "another key for every row",
    "merged": "keys grouped and added up",
    "key_groups": "other key groups, no query",
}


def transform() -> str:
    """A transform next to an export of the same state, by what its query changes."""
    data = _data("transform")
    rows = [(title, f"{data[case]:.1f}", f"{data[f'{case}_to_export']:.2f}") for case, title in TRANSFORMS.items()]
    return _table(("query", "s", "to an export"), rows)


TABLES: Mapping[str, Callable[[], str]] = {
    "large-batches": large_batches,
    "long-run": long_run,
    "bucket": bucket,
    "small-batches": small_batches,
    "before-and-after": before_and_after,
    "state-costs": state_costs,
    "memory": memory,
    "event-time": event_time,
    "closed-history": closed_history,
    "history-pages": history_pages,
    "bucket-pages": bucket_pages,
    "first-answers": first_answers,
    "retention-costs": retention_costs,
    "transform": transform,
    "keys": keys,
    "costs": costs,
}
"""The table of each name."""


if __name__ == "__main__":
    sys.exit(main())
