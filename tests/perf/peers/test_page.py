"""The page says what the rows say; and Flink is unpacked only from the package that was committed."""

import json
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from benchmarks.peers.page import write_page
from benchmarks.peers.setup_flink import unpack

FACTS = {"command": "make bench", "seed": 1, "cores": 2, "versions": {"pyspark": "4"}, "updates": 10}


def _row(kind: str, n: int, seconds: float, **more: Any) -> dict[str, Any]:
    asked = {"scenario": "a", "mode": "warm", "kind": kind, "size": 1_000, "updates": 10, "choice": "uniform"}
    measured = {"round": n, "seconds": seconds, "upkeep_seconds": 0.25, "bytes": 3_000, "folder_bytes": 9_000}
    return asked | measured | more


def _written(rows: list[dict[str, Any]], folder: Path) -> str:
    write_page(FACTS, rows, folder)
    assert json.loads((folder / "peers.json").read_text()) == {"facts": FACTS, "rows": rows}
    assert (folder / "peers.svg").read_text().count("<circle") > 1
    return (folder / "peers.md").read_text()


def test_medians_leave_out_the_load_and_the_round_that_warms_up(tmp_path: Path) -> None:
    times = {"tidemark": [99.0, 50.0, 1.0, 2.0, 3.0], "append": [99.0, 70.0, 8.0, 9.0, 7.0]}
    rows = [_row(kind, n, s) for kind, row in times.items() for n, s in enumerate(row, -1)]
    page = _written(rows, tmp_path)
    assert "| 1,000 | 10 | uniform | Tidemark, own driver | 3 | 2.00 | 1.00 |" in page
    assert "| 1,000 | 10 | uniform | Structured Streaming, append | 3 | 8.00 | 4.00 |" in page
    assert "Tidemark, own driver is the quickest" in page


def test_whoever_is_ahead_of_tidemark_stands_among_the_losses(tmp_path: Path) -> None:
    rows = [
        _row(kind, n, s) for kind, s in {"tidemark": 2.0, "flink": 0.25, "overwrite": 6.0}.items() for n in range(3)
    ]
    checked = {"keys": 1_010, "mb": 700, "cpu_seconds": 33.0}
    page = _written([*rows, _row("flink", -1, 0.0, checked=checked)], tmp_path)
    _, _, losses = page.partition("## Where others are ahead")
    assert "Flink, resident took 0.25 s, Tidemark, own driver 2.00 s" in losses
    assert "700 MB and had used 33 s of CPU" in losses
    assert "full overwrite took" not in losses
    assert "States: 1, with 1,010 rows in all" in page


def test_growth_is_told_per_system(tmp_path: Path) -> None:
    sizes = {1_000: 2.0, 4_000: 2.2}
    page = _written([_row("tidemark", n, s, size=size) for size, s in sizes.items() for n in range(3)], tmp_path)
    assert "Tidemark, own driver: 4,000 keys take 1.10 times as long as 1,000." in page


def test_storage_is_told_per_run_and_for_thirty_points(tmp_path: Path) -> None:
    held = [10_000_000, 11_000_000, 14_000_000]
    page = _written([_row("tidemark", n, 1.0, folder_bytes=size) for n, size in enumerate(held, -1)], tmp_path)
    assert "| 1,000 | Tidemark, own driver | 10.0 | 2 | 2.00 | 70.0 |" in page


def test_restore_points_have_a_row_per_system(tmp_path: Path) -> None:
    verbs = {"savepoint": 0.5, "restore": 1.25, "fork": 2.0}
    kept = {k: v for k, v in _row("append", 0, 0.0).items() if k != "round"}
    rows = [kept | {"scenario": "e", "verb": verb, "seconds": seconds} for verb, seconds in verbs.items()]
    page = _written([_row("tidemark", 0, 1.0), *rows], tmp_path)
    assert "| 1,000 | Structured Streaming, append | 0.50 | 1.25 | 2.00 |" in page


def test_the_read_is_told_as_a_share_of_a_bare_count(tmp_path: Path) -> None:
    row = _row("tidemark", 0, 1.0)
    del row["round"]
    counts = [{"scenario": "k", "records": 10, "counted": n, "read": r, "count": 0.5} for n, r in enumerate((9, 1, 1))]
    page = _written([_row("tidemark", 0, 1.0), *(row | found for found in counts)], tmp_path)
    assert "10 records takes 1.00 s,\nwhere Spark counts the same range" in page
    assert "in 0.50 s:\n0.50 of the bare speed" in page


def test_what_was_wanted_is_told_with_what_was_found(tmp_path: Path) -> None:
    seconds = {("tidemark", 2): 1.0, ("append", 2): 5.0, ("append-log", 2): 3.0, ("merge", 2): 10.0}
    seconds |= {("tidemark", 8): 1.1, ("append", 8): 4.4}
    rows = [_row(kind, n, s, size=size * 10**6) for (kind, size), s in seconds.items() for n in range(3)]
    rows += [_row(kind, n, s, scenario="d") for kind, s in {"tidemark": 3.0, "append": 6.0}.items() for n in range(2)]
    _, _, found = _written(rows, tmp_path).partition("## Targets and results")
    assert "append sink, 2 M keys, relative to Tidemark, own driver | ≥ 4 | 3.00 | **missed** |" in found
    assert "append sink, 8 M keys, relative to Tidemark, own driver | ≥ 4 | 4.00 | met |" in found
    assert "MERGE sink, 2 M keys, relative to Tidemark, own driver | ≥ 10 | 10.00 | met |" in found
    assert "a run in a fresh process, relative to Structured Streaming's, append sink | ≤ 0.8 | 0.50 | met |" in found
    assert "relative to one at 0.5 M" not in found, "0.5 M keys were not measured"


def test_who_overtakes_tidemark_is_told_with_the_shares_between_which(tmp_path: Path) -> None:
    churn = {("tidemark", 1): 1.0, ("tidemark", 100): 5.0, ("append", 1): 2.0, ("append", 100): 4.0, ("flink", 1): 0.5}

    def page_of(rounds: int) -> str:
        rows = [
            _row(kind, n, s, scenario="b", updates=updates)
            for (kind, updates), s in churn.items()
            for n in range(1 + rounds)
        ]
        more = (_row(kind, n, 1.5) for kind in ("tidemark", "append") for n in range(1 + rounds))
        return _written([*rows, *more], tmp_path)

    assert "overtakes" not in page_of(9), "too few rounds for a claim"
    page = page_of(10)
    assert (
        "- Between 1.0% and 10.0% Structured Streaming, append overtakes Tidemark, own driver, upkeep included." in page
    )
    assert page.count("overtakes") == 1


def test_another_package_is_not_unpacked(tmp_path: Path) -> None:
    package, folder = tmp_path / "flink.whl", tmp_path / "cache" / "flink"
    with ZipFile(package, "w") as archive:
        archive.writestr("pyflink/lib/flink-dist.jar", b"not Flink")
    with pytest.raises(ValueError, match="nothing was unpacked"):
        unpack(package, folder)
    assert not folder.exists()
