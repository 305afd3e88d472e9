"""Every page of benchmarks says by what it was made, and what its data says."""

import json
import re
import statistics
from pathlib import Path
from typing import Any

import pytest

from benchmarks import report, scale_page, tables
from benchmarks.facts import told
from benchmarks.latency import page as latency_page
from benchmarks.nexmark import page as nexmark_page
from benchmarks.peers import page as peers_page
from benchmarks.publications import page as publications_page
from benchmarks.publications import policies
from benchmarks.report import FOLDER

ROOT = FOLDER.parents[1]
PAGES = sorted(path.stem for path in FOLDER.glob("*.md") if path.stem != "README")


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


@pytest.mark.parametrize("page", tables.PAGES)
def test_tables_between_comments_are_what_the_command_writes_of_the_data(page: str) -> None:
    text = (FOLDER / page).read_text()
    assert tables.rewritten(text) == text, "python -m benchmarks.tables"


def test_every_table_has_its_place() -> None:
    texts = "".join((FOLDER / page).read_text() for page in tables.PAGES)
    assert [name for name in tables.TABLES if texts.count(f"<!-- {name} -->") != 1] == []


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


def _listed() -> dict[str, tuple[str, str]]:
    """Per page of the table in the README: the command, and what it writes."""
    lines = [line.strip("| ").split(" | ") for line in (FOLDER / "README.md").read_text().splitlines()]
    named = [(re.match(r"\[([\w-]+)\.md\]", cells[0]), cells) for cells in lines if len(cells) == 5]
    return {name[1]: (re.findall(r"`([^`]+)`", cells[3])[0], cells[4]) for name, cells in named if name}


def test_the_readme_lists_every_page_and_every_file_of_data() -> None:
    assert sorted(_listed()) == PAGES
    text = (FOLDER / "README.md").read_text()
    data = {path.name for path in FOLDER.iterdir() if path.suffix != ".md" and "quick" not in path.name}
    assert [name for name in sorted(data) if f"({name})" not in text] == []


def _modules_of_bench() -> list[str]:
    recipe = (ROOT / "Makefile").read_text().partition("\nbench:")[2].partition("\n\n")[0]
    return re.findall(r"-m (benchmarks\.\w+)", recipe)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_names_the_command_that_made_it_and_what_it_writes(page: str) -> None:
    command, writes = _listed()[page]
    _, _, head = (FOLDER / f"{page}.md").read_text().partition("\n\n")
    made = re.match(r"Made by `([^`]+)`", head)
    assert made, "the first paragraph says by what the page was made"
    module = re.search(r"benchmarks\.\w+", made[1])
    assert command == made[1] or (module and (command, module[0]) in {("make bench", m) for m in _modules_of_bench()})
    by_hand = "written by hand" in head.partition("\n\n##")[0]
    assert by_hand == (writes != "page and data"), "what a command does not write is written by hand, and says so"


@pytest.mark.parametrize("page", PAGES)
def test_the_command_of_a_page_exists_and_writes_what_is_said(page: str) -> None:
    command, writes = _listed()[page]
    if command == "make test-faults":
        assert "faults.csv" in (ROOT / "tests/faults/conftest.py").read_text()
        return
    names = [f"{n}.py" for n in re.findall(r"benchmarks\.(\w+)", command)] or [
        f"{m.rpartition('.')[2]}.py" for m in _modules_of_bench()
    ]
    perf = ROOT / "benchmarks"
    places = [perf / name if (perf / name).is_file() else perf / name.removesuffix(".py") / "page.py" for name in names]
    text = "".join(path.read_text() for path in [*places, *([perf / "report.py"] if command == "make bench" else [])])
    assert writes in ("data", "page and data")
    assert f'"{page}' in text or f'"{page}.json"' in text


def _rewritten(folder: Path) -> dict[str, str]:
    """The pages that commands write, made again from the committed data."""
    cost, peers, latency, scale = (_data(n) for n in ("checkpoint-cost", "peers", "airflow-latency", "scale"))
    upkeep, publications = _data("publication-upkeep"), _data("publications")
    peers_page.write_page(peers["facts"], peers["rows"], folder)
    return {
        "checkpoint-cost": report.page("checkpoint-cost", cost["facts"], cost["rows"]),
        "peers": (folder / "peers.md").read_text(),
        "publications": publications_page.page("publications", publications["facts"], publications["rows"]),
        "publication-upkeep": publications_page.upkeep_page("publication-upkeep", upkeep["facts"], upkeep["rows"]),
        "airflow-latency": latency_page.page("airflow-latency.json", latency["facts"], latency["rows"]),
        "scale": scale_page.page("scale.json", scale["facts"], scale["rows"]),
        "nexmark": nexmark_page.page(_data("nexmark")),
    }


def test_a_page_that_a_command_writes_is_what_it_writes_of_the_data(tmp_path: Path) -> None:
    written = _rewritten(tmp_path)
    assert sorted(written) == sorted(page for page, (_, writes) in _listed().items() if writes == "page and data")
    assert [page for page, text in written.items() if text != (FOLDER / f"{page}.md").read_text()] == []


def test_pages_that_quote_the_bytes_of_publications_have_them_from_the_data() -> None:
    rows = [r for r in _data("publication-upkeep")["rows"] if r["width"] == "three fields" and "publication" in r]

    def ratio(found: list[dict[str, Any]]) -> str:
        written = sum(r["data"] + r["vectors"] + r["log"] for r in found)
        return f"{written / sum(r['changed'] for r in found):.2f}"

    how_to = " ".join((ROOT / "docs/how-to/publish-a-delta-table.md").read_text().split())
    readme = " ".join((FOLDER / "README.md").read_text().split())
    first, every, last = ratio(rows[:10]), ratio(rows), ratio(rows[-30:])
    assert f"write {first} times the bytes of the changed rows, and {len(rows)} publications {every} times" in how_to
    assert (
        f"needs {first} over ten real publications, {every} over {len(rows)}, and {last} over the last thirty" in readme
    )


def test_the_policies_of_upkeep_are_those_of_the_model() -> None:
    lines = [policies.line_of(row) for row in _data("publication-policies")["rows"]]
    assert [line for line in lines if line not in (FOLDER / "README.md").read_text().splitlines()] == []


def _medians(pipeline: str) -> float:
    rows = [r for r in _data("checkpoint-cost")["rows"] if r["pipeline"] == pipeline and r["round"] >= 0]
    return float(statistics.median(r["seconds"] for r in rows))


def _first(pipeline: str) -> float:
    rows = _data("checkpoint-cost")["rows"]
    (found,) = (r["seconds"] for r in rows if r["pipeline"] == pipeline and r["round"] < 0)
    return float(found)


def test_the_page_on_scale_takes_its_slopes_from_the_data() -> None:
    text = (ROOT / "docs/scale.md").read_text()
    fold = _medians("bench-8000000") / _medians("bench-500000")
    process = _medians("bench-process-8000000") / _medians("bench-process-2000000")
    assert f"| a fold's checkpoint | × {fold:.2f} for 16 times the keys |" in text
    assert f"looks up the keys that it touches | × {process:.2f} for 4 times the keys |" in text
    more = [(_first(f"{kind}8000000") - _first(f"{kind}2000000")) / 6 for kind in ("bench-", "bench-process-")]
    assert "{:.1f} s with a fold, {:.1f} s with a process".format(*more) in text
    small, process = _medians("bench-8000000"), _medians("bench-process-2000000")
    assert f"of 20,000 records takes {small:.1f} s with a fold" in text.replace("\n", " ")
    assert f"with a process it takes {process:.1f} s at 2 M keys" in text


def test_the_costs_of_windows_and_timers_are_those_of_the_data() -> None:
    data, readme = _data("event-time"), (FOLDER / "README.md").read_text()
    median, ratio = data["median_s"], data["ratios"]
    rows = {
        "a fold": (median["fold still"], None),
        "a fold with windows, none closes": (median["windows still"], ratio["windows_to_fold"]),
        "10,000 windows close": (median["windows due"], ratio["closing_to_still"]),
        "a process": (median["process still"], None),
        "a process with timers, none fires": (median["timers still"], ratio["timers_to_process"]),
        "10,000 timers fire": (median["timers due"], ratio["firing_to_process"]),
    }
    for title, (seconds, times) in rows.items():
        assert f"| {title} | {seconds:.2f} | {'' if times is None else f'{times:.2f} times'}" in readme, title
    whole: dict[str, list[float]] = {}
    for row in data["rows"]:
        if row["kind"] in ("due", "still"):
            whole.setdefault(row["pipeline"], []).append(row["seconds"] + row["compact_seconds"])
    fold, windows, process, timers = (statistics.mean(whole[name]) for name in ("fold", "windows", "process", "timers"))
    claim = f"{fold:.2f} s for the fold, {windows:.2f} s for windows, {process:.2f} s for the process and"
    assert f"{claim} {timers:.2f} s for timers" in readme.replace("\n", " ")


def test_the_costs_after_windows_have_closed_are_those_of_the_data() -> None:
    data, readme = _data("closed-history"), (FOLDER / "README.md").read_text()
    for size in data["sizes"]:
        costs = [
            data[of][kind][str(size)] for kind in ("due", "still") for of in ("median_s", "mean_with_compactions_s")
        ]
        assert f"| {size:,} | {' | '.join(f'{seconds:.2f}' for seconds in costs)} |" in readme
    closed = [row["closed"] for row in data["rows"] if row["kind"] == "due"]
    assert 38_000 < min(closed) <= max(closed) < 40_000, "the title says 39,000"
