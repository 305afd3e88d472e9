"""The sections on many checkpoints say what the rows say: means, what points keep, what goes with them, a year."""

from typing import Any

from benchmarks.peers.points_page import losses, sections

ASKED = {"mode": "warm", "size": 1_000, "updates": 10, "choice": "uniform"}


def _round(kind: str, n: int, seconds: float, upkeep: float = 0.0, compacted: str = "") -> dict[str, Any]:
    row = ASKED | {"scenario": "f", "kind": kind, "round": n, "seconds": seconds, "upkeep_seconds": upkeep}
    phases = {"read": 0.5, "fold.totals": 0.25, "runs.totals": 0.125}
    return row | ({"compacted": compacted, "phases": phases} if kind == "tidemark" else {})


def _kept(kind: str, points: int, seconds: float, sizes: tuple[int, int, int, int]) -> dict[str, Any]:
    before, left, needed, results = (size * 1_000_000 for size in sizes)
    told = {"kept": points, "seconds": seconds, "before": before, "left": left, "needed": needed, "results": results}
    return ASKED | {"scenario": "g", "kind": kind} | told


def _page(rows: list[dict[str, Any]]) -> str:
    return "\n".join(sections(rows))


def test_a_mean_has_level_folds_in_it_and_rewrites_of_a_whole_base_beside_it() -> None:
    ours = [
        _round("tidemark", 0, 1.0),
        _round("tidemark", 1, 1.0, 0.5, "level"),
        _round("tidemark", 2, 1.0, 9, "whole"),
    ]
    theirs = [_round("append", n, 3.5) for n in range(3)]
    page = _page([_round("tidemark", -1, 99.0), *ours, *theirs])
    assert "## 3 checkpoints in a row" in page
    assert "| Tidemark, own driver | 3 | 1.00 | 1.00 | 1.17 | 1.00 | 1 | 9.00 | 0.12 |" in page
    assert "| Structured Streaming, append | 3 | 3.50 | 3.50 | 3.50 | 3.00 | 0 | – | – |" in page


def test_storage_tells_what_is_there_what_is_needed_and_what_are_results() -> None:
    rows = [_kept("tidemark", 30, 1.0, (50, 40, 30, 0)), _kept("flink", 30, 0.0, (20, 20, 19, 0))]
    page = _page([*rows, _kept("append", 30, 1.0, (90, 80, 70, 50))])
    assert "## Storage of 30 points" in page
    assert "| 1,000 | Structured Streaming, append | 80.0 | 2.00 | 70.0 | 50.0 | 30.0 |" in page
    assert "- Flink, resident keeps the fewest bytes; Tidemark, own driver is number 2 of 3 with results" in page
    assert "number 3 of 3 without them" in page
    assert losses(rows) == ["- Storage of 30 points: Flink, resident keeps 20.0 MB, Tidemark, own driver 40.0 MB."]


def test_what_is_freed_stands_beside_the_least_that_could_be_left() -> None:
    rows = [_kept(kind, n, 1.5, (40, 20, 10, 0)) for n in (30, 3) for kind in ("tidemark", "delta-merge")]
    page = _page(rows)
    assert "From 30 points each system went to the\nnewest 3" in page
    assert "| 1,000 | Delta MERGE, copy-on-write | 1.50 | 40.0 | 20.0 | 20.0 | 10.0 | 2.00 |" in page
    assert "Flink does not take part" not in page
    assert "Flink does not take part" in _page([*rows, _kept("flink", 30, 0.0, (20, 20, 19, 0))])


def test_a_year_is_told_by_its_total() -> None:
    asked = ASKED | {"scenario": "i", "upkeep_seconds": 0.25, "folder_bytes": 2_000_000}
    seconds = {"tidemark": 2.0, "append": 3.0, "flink": 0.5, "tidemark-whole": 1.0}
    rows = [asked | {"kind": k, "month": n, "seconds": s} for n in range(1, 5) for k, s in seconds.items()]
    page = _page(rows)
    assert "## 4 months of flights" in page
    assert "| Structured Streaming, append | 4 | 12.0 | 1.50 | 3.00 | 1.0 | 2.0 |" in page
    assert losses(rows) == ["- A year of flights: Flink, resident took 2.0 s, Tidemark, own driver 8.0 s."]


def test_no_rows_make_no_sections() -> None:
    assert sections([_round("tidemark", -1, 1.0)]) == []
    assert losses([]) == []
