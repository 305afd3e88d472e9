"""Pages of benchmarks that are written by hand say what their data says."""

import json
from typing import Any

import pytest

from tests.perf.facts import told
from tests.perf.report import FOLDER


def _data(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return found


def _cells(page: str, title: str) -> list[str]:
    """The cells of the table's row that begins so."""
    lines = (FOLDER / f"{page}.md").read_text().splitlines()
    (found,) = (line for line in lines if line.startswith(f"| {title}"))
    return [cell.strip() for cell in found.strip("|").split("|")[1:]]


@pytest.mark.parametrize("page", ["checkpoint-cost", "state-costs", "restore-points"])
def test_a_page_says_how_it_was_made(page: str) -> None:
    data = _data(page)
    assert told(data.get("facts", data)) in (FOLDER / f"{page}.md").read_text().splitlines()


STATE_COSTS = {
    "plain Delta scan of the base": ("scan", None),
    "full resolve in Spark's workers": ("resolve_in_workers", "resolve_in_workers_to_scan"),
    "full resolve by Spark's SQL": ("resolve", "resolve_to_scan"),
    "full resolve by DuckDB": ("resolve_without_spark", None),
    "the same rows reduced in memory": ("reduce_in_memory", None),
    "point read of one key": ("point", None),
    "level-1 compaction": ("level_1", None),
    "rewrite of the whole base": ("full", "full_per_million_keys"),
}


@pytest.mark.parametrize("title", STATE_COSTS)
def test_state_costs(title: str) -> None:
    data, (seconds, ratio) = _data("state-costs"), STATE_COSTS[title]
    cell = _cells("state-costs", title)[0]
    assert float(cell.split()[0]) == pytest.approx(data[seconds], abs=0.051 if data[seconds] > 10 else 0.0051)
    if ratio is not None:
        assert f"({data[ratio]:.1f} " in cell


def test_the_rate_of_process_operators() -> None:
    rate = _data("process-rate")["records_per_s"]
    assert _cells("state-costs", "records per second of a process operator")[0] == f"{rate:,}"


@pytest.mark.parametrize("verb", ["savepoint", "fork", "restore"])
def test_restore_points(verb: str) -> None:
    seconds = _data("restore-points")["seconds"][verb].values()
    assert _cells("restore-points", verb) == [f"{s:.3f} s" for s in seconds]


def test_what_a_fork_adds() -> None:
    forks, page = _data("restore-points")["forks"], (FOLDER / "restore-points.md").read_text()
    assert f"{forks['state_bytes'] / 1e6:.1f} MB of state" in page
    for fork in forks["forks"]:
        assert f"each added {fork['added_bytes'] / 1e6:.2f} MB" in page
        assert f"the run itself is {fork['run_bytes'] / 1e6:.2f} MB" in page
