"""`python -m benchmarks.tables`, the end of `make bench`: writes the tables of pages whose text is written by hand.

A page has a pair of comments around each table, `<!-- NAME -->` and `<!-- /NAME -->`. A test compares the pages with
the data.
"""

import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from benchmarks.report import FOLDER

PAGES = ("README.md", "state-costs.md", "../scale.md")


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


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a table whose first column is text."""
    lines = ["|---|" + "---:|" * (len(head) - 1), *(f"| {' | '.join(row)} |".replace("|  |", "| |") for row in rows)]
    return "\n".join([f"| {' | '.join(head)} |", *lines])


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


TABLES: Mapping[str, Callable[[], str]] = {
    "large-batches": large_batches,
    "long-run": long_run,
    "bucket": bucket,
    "small-batches": small_batches,
    "before-and-after": before_and_after,
    "state-costs": state_costs,
    "memory": memory,
}
"""The table of each name."""


if __name__ == "__main__":
    sys.exit(main())
