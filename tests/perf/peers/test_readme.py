"""The README's table of costs says what was measured: each cell is a figure of the committed data."""

import json
import statistics
from collections.abc import Sequence
from typing import Any

import pytest

from benchmarks.latency.page import percentile
from benchmarks.peers.places import ROOT
from benchmarks.report import FOLDER

Rows = Sequence[dict[str, Any]]
README = (ROOT / "README.md").read_text()
COSTS = README.partition("## What it costs")[2].partition("\n## ")[0]
SYSTEMS = {
    "Tidemark": "tidemark",
    "Structured Streaming, results appended": "append",
    "Structured Streaming, results merged": "merge",
    "Delta MERGE, copy-on-write": "delta-merge",
    "Delta MERGE, deletion vectors": "delta-vectors",
    "delta-rs MERGE, without a JVM": "delta-rs",
    "Flink, always running": "flink",
}
NONE = "–"


def _rows(name: str) -> Rows:
    found: Rows = json.loads((FOLDER / f"{name}.json").read_text())["rows"]
    return found


PEERS = _rows("peers")


def _rounds(scenario: str, kind: str, size: int, first: int) -> Rows:
    asked = [r for r in PEERS if (r["scenario"], r["kind"], r.get("size")) == (scenario, kind, size)]
    return [r for r in asked if r.get("round", -1) >= first]


def _cells() -> dict[str, list[str]]:
    lines = [line.strip("|").split("|") for line in COSTS.splitlines() if line.startswith("| ")]
    return {cells[0].strip(): [cell.strip() for cell in cells[1:]] for cells in lines[1:]}


def _growth(found: Rows) -> float:
    """Bytes by which the folder grows per round, from the first round to the last."""
    held: list[float] = [r["folder_bytes"] for r in sorted(found, key=lambda r: r["round"])]
    return (held[-1] - held[0]) / (len(held) - 1)


def _rounded(megabytes: float) -> str:
    return f"{megabytes:.1f}" if megabytes < 10 else f"{megabytes:.0f}"


def _measured(kind: str) -> list[str]:
    few, many = _rounds("a", kind, 2_000_000, 1), _rounds("f", kind, 500_000, 0)
    cells = [NONE] * 6
    if few:
        cells[0] = f"{statistics.median(r['seconds'] for r in few):.2f}"
        cells[1] = _rounded(statistics.median(r["bytes"] for r in few) / 1e6)
    if many:
        cells[2] = f"{statistics.mean(r['seconds'] + r['upkeep_seconds'] for r in many):.2f}"
        cells[3] = _rounded(_growth(many) / 1e6)
    for row in PEERS:
        if (row["kind"], row.get("size"), row.get("verb")) == (kind, 500_000, "restore"):
            cells[4] = f"{row['seconds']:.2f}"
        if (row["kind"], row.get("kept")) == (kind, 30):
            cells[5] = f"{row['left'] / 1e6:.0f}"
    return cells


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_row_of_the_table_is_what_was_measured(system: str) -> None:
    assert _cells()[system] == _measured(SYSTEMS[system])


def test_the_table_has_every_system_and_no_other() -> None:
    assert list(_cells()) == list(SYSTEMS)


def test_the_text_says_over_how_many_checkpoints() -> None:
    counts = {kind: len(_rounds("f", kind, 500_000, 0)) for kind in SYSTEMS.values()}
    assert {counts[kind] for kind in ("tidemark", "append", "flink")} == {40}
    assert {counts[kind] for kind in ("delta-merge", "delta-vectors")} == {30}
    assert "over 40 checkpoints in a row (30 of Delta MERGE)" in COSTS


def _text() -> str:
    return " ".join(COSTS.split())


def test_the_upkeep_beside_the_critical_path_is_named_with_its_cost() -> None:
    rounds = _rounds("f", "tidemark", 500_000, 0)
    alone = statistics.mean(r["seconds"] for r in rounds)
    both = statistics.mean(r["seconds"] + r["upkeep_seconds"] for r in rounds)
    assert any(r.get("compacted") == "whole" for r in rounds), "rewrites of the whole base are part of the mean"
    assert f"at 0.5 M keys the mean rises from {alone:.2f} s to {both:.2f} s" in _text()
    long = json.loads((FOLDER / "long-run.json").read_text())
    means = f"take {long['mean_s']:.2f} s in the mean, and {long['mean_with_compactions_s']:.2f} s with upkeep"
    assert means in _text()
    for whole in long["rewrites_of_the_base_s"]:
        assert f"one rewrite of the base takes {whole:.0f} s" in _text()
    others = [kind for kind in SYSTEMS.values() if kind != "tidemark"]
    counted = [r for kind in others for r in _rounds("f", kind, 500_000, 0)]
    assert len(counted) == 140
    assert all(r["upkeep_seconds"] < 0.001 for r in counted)


def test_going_back_is_explained_for_every_system_that_did() -> None:
    _, _, told = _text().partition("*Go back*")
    assert [kind for kind in SYSTEMS.values() if _measured(kind)[4] != NONE] == [
        "tidemark",
        "append",
        "delta-merge",
        "flink",
    ]
    for name in (
        "Tidemark begins a timeline",
        "Structured Streaming, by hand",
        "Delta MERGE: RESTORE",
        "Flink: the job ends",
    ):
        assert name in told


def test_eight_million_keys_and_airflow() -> None:
    medians = [statistics.median(r["seconds"] for r in _rounds("a", k, 8_000_000, 1)) for k in ("tidemark", "append")]
    assert "a checkpoint took {:.2f} s in that comparison, {:.2f} s for".format(*medians) in _text()
    alone = json.loads((FOLDER / "long-run.json").read_text())["median_s"]
    assert f"the 400 in a row took {alone:.2f} s in the median" in _text()
    runs = _rows("airflow-latency")
    wanted = {("timed", 10_000): "[{} for", ("gated", 10_000): "{} with", ("timed", 0): "{} where"}
    for asked, text in wanted.items():
        seconds = [r["completed"] for r in runs if (r["pipeline"], r["records"]) == asked and r["round"] >= 0]
        assert text.format(f"{percentile(seconds, 0.5):.2f} s") in _text()
