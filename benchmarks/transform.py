"""Cost of a transform next to an export of the same state: `python -m benchmarks.transform`, without Spark and Kafka.

Each figure is the median of interleaved repetitions in one process. `BENCH=quick` uses fewer keys and keeps no report.
"""

import json
import os
import resource
import shutil
import sys
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks.facts import made_by
from benchmarks.synthetic import NOW, Synthetic
from benchmarks.timing import medians
from tidemark.storage.parquet_folder import ParquetFolder
from tidemark.transfer.export_folder import FolderExport
from tidemark.transfer.transform_tables import SourceFiles, SourceState, StateQuery, transformed_rows

QUICK = os.environ.get("BENCH") == "quick"
KEYS = 500_000 if QUICK else 8_000_000
RUNS = max(8, KEYS // 20 // 20_000)
ROUNDS, SEED = (1, 7) if QUICK else (3, 7)
COMMAND = "python -m benchmarks.transform"
KEPT = Path(__file__).resolve().parents[1] / "docs" / "benchmarks" / "transform.json"
QUERIES = {
    "same": "FROM totals",
    "one_percent": "SELECT * REPLACE (if(hash(key) % 100 = 0, amount + 1, amount) AS amount) FROM totals",
    "all_values": "SELECT * REPLACE (amount + 1 AS amount) FROM totals",
    "all_keys": "SELECT * REPLACE ('x' || key AS key) FROM totals",
    "merged": "SELECT left(key, length(key) - 1) AS key, sum(updates) AS updates, sum(amount) AS amount,"
    " max(last_at) AS last_at FROM totals GROUP BY ALL",
    "key_groups": None,
}
"""The query of each case; None = only other key groups."""


def main() -> int:
    """Measures, prints one JSON object, and writes it to docs/benchmarks unless the run is a quick one."""
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as home:
        state = Synthetic(Path(home) / "warehouse", KEYS)
        state.add_runs(RUNS, SEED)
        sys.stderr.write(f"{KEYS:,} keys, {RUNS} runs\n")
        measured: dict[str, Any] = {"export": lambda: _export(state, Path(home))}
        measured |= {
            name: (lambda query=query: _transform(state, Path(home), query)) for name, query in QUERIES.items()
        }
        seconds = medians(measured, ROUNDS)
        ratios = {f"{name}_to_export": round(seconds[name] / seconds["export"], 2) for name in QUERIES}
        peak = {"peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}
        made = made_by(COMMAND, SEED) | {"keys": KEYS, "runs": RUNS} | seconds | ratios | peak
        report = json.dumps(made, indent=2) + "\n"
        sys.stdout.write(report)
        if not QUICK:
            KEPT.write_text(report)
    return 0


def _folder(home: Path, name: str) -> ParquetFolder:
    shutil.rmtree(home / name, ignore_errors=True)
    (home / name).mkdir()
    return ParquetFolder(home / name)


def _export(state: Synthetic, home: Path) -> None:
    plan = SimpleNamespace(schemas={"totals": state.schema})
    at: Any = SimpleNamespace(plan=plan, handles={"totals": state.handle}, now=NOW)
    FolderExport(warehouse=str(state.root), folder=_folder(home, "export"), checkpoint=at).state("totals", {})


def _transform(state: Synthetic, home: Path, query: str | None) -> None:
    """What the command does between its checks and its commit."""
    schema = state.schema if query is not None else replace(state.schema, key_groups=1024)
    source = SourceState(schema=state.schema, handle=state.handle, now=NOW)
    files = SourceFiles(warehouse=str(state.root), folder=_folder(home, "scratch"), states={"totals": source})
    wanted = StateQuery(schema=schema, statement=query, origin="totals", at_ms=NOW.event_time_ms or 0, frontier=None)
    with transformed_rows(files, wanted) as rows:
        found = rows.describe()
        assert not found.refused, found
        rows.write(_folder(home, "written"), "base", state.handle.through + 1)
    with suppress(FileNotFoundError):
        shutil.rmtree(home / "scratch")


if __name__ == "__main__":
    sys.exit(main())
