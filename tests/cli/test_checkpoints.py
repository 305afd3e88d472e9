"""The whole life of a line on the command line: run, cut, cover, idle, list, show, abort, state, export.

The tests of this module grow one warehouse and run in the order in which they are written.
"""

import csv
import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import TillPipeline
from tests.support.sales import START
from tidemark.operations import checkpoints
from tidemark.ports import PlanRequest

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]

UNTIL = START + timedelta(hours=12)
FACTS = {
    "id", "pipeline", "timeline", "sequence", "attempt", "parent", "interval_start", "interval_end", "logical_time",
    "covered_until", "ranges", "watermark", "watermarks", "source_watermarks", "frontiers", "records",
    "dead_letters", "filtered",
    "broadcast_versions",
    "keys", "emitted", "sinks",
    "run_bytes", "full_bytes", "gate", "accepted_losses", "left_behind", "pending_records",
    "timings_ms", "seconds", "drains",
}  # fmt: skip
"""Documented keys of a checkpoint; a script may rely on them."""


def _check(line: TillPipeline, made: dict[str, Any]) -> None:
    """One checkpoint against the oracle: ranges, counts and the state of both operators."""
    ends, starts = line.ends(made), line.starts(made)
    assert made["records"] == sum(ends.values()) - sum(starts.values())
    read = [s for p in ends for s in line.sales.sent[p][starts[p] : ends[p]]]
    assert made["dead_letters"] == {"accounts": sum(s["account"] is None for s in read), "tills": 0}
    assert made["keys"] == {
        "accounts": len({s["account"] for s in read} - {None}),
        "tills": len({(s["shop"], s["till"], s["day"]) for s in read}),
    }
    assert _accounts(line, made["id"]) == line.sales.accounts(ends)
    assert _tills(line, made["id"]) == line.sales.tills(ends)


def _rows(line: TillPipeline, uid: str, *options: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = line.tidemark("state", "show", "till", uid, *options, "--json").ok().json
    return rows


def _accounts(line: TillPipeline, checkpoint: str) -> dict[str, dict[str, Any]]:
    rows = _rows(line, "accounts", "--checkpoint", checkpoint, "--limit", "1000")
    return {r["account"]: {k: v for k, v in r.items() if k not in ("account", "_changed")} for r in rows}


def _tills(line: TillPipeline, checkpoint: str) -> dict[tuple[str, int, str], dict[str, Any]]:
    rows = _rows(line, "tills", "--checkpoint", checkpoint, "--limit", "1000")
    return {(r["shop"], r["till"], r["day"]): {"sales": r["sales"], "total": r["total"]} for r in rows}


def test_before_the_first_checkpoint_there_is_nothing_to_read(line: TillPipeline) -> None:
    assert line.tidemark("checkpoint", "list", "till", "--json").ok().json == []
    assert "no checkpoints yet" in line.tidemark("checkpoint", "list", "till").ok().err
    line.tidemark("checkpoint", "show", "till", "1").failed(3, "1")
    line.tidemark("state", "show", "till", "accounts").failed(3, "no checkpoints yet", "tidemark run till")
    line.tidemark("compact", "till").failed(3, "no checkpoints yet")
    assert line.tidemark.objects("till") == {}


def test_one_checkpoint_takes_the_oldest_records_of_all_partitions(line: TillPipeline) -> None:
    made = line.run("--max-records", "14", "--once")
    assert set(made) == FACTS
    assert (made["id"], made["parent"], made["sequence"], made["attempt"]) == ("chk-1", None, 1, 1)
    assert 0 < sum(line.ends(made).values()) <= 14
    assert 0 < made["run_bytes"] == made["full_bytes"]
    assert {"read", "fold.accounts", "runs.accounts", "fold.tills", "runs.tills", "seal"} - set(made["timings_ms"]) <= {
        "seal"
    }
    assert made["seconds"] == pytest.approx(sum(made["timings_ms"].values()) / 1000, abs=0.001)
    _check(line, made)


def test_run_until_a_time_reads_what_is_older(line: TillPipeline) -> None:
    made = line.run("--until", UNTIL.isoformat())
    assert made["interval_end"] == made["covered_until"] == "2024-05-01T12:00:00Z"
    assert made["logical_time"] >= line.made[0]["logical_time"]
    older = {p: [s["at"] < UNTIL.isoformat() for s in sales] for p, sales in line.sales.sent.items()}
    assert line.ends(made) == {p: max(line.ends(line.made[0])[p], sum(flags)) for p, flags in older.items()}
    assert line.starts(made) == line.ends(line.made[0])
    _check(line, made)


def test_a_covered_time_makes_no_checkpoint_and_says_which_one_covers_it(line: TillPipeline) -> None:
    before = line.tidemark.objects("till")
    assert line.run("--until", "2024-05-01T12:00:00") == {"covered_by": "chk-2"}
    assert line.run("--until", "2024-04-30T00:00:00+02:00") == {"covered_by": "chk-2"}
    answer = line.tidemark("run", "till", "--until", UNTIL.isoformat()).ok()
    assert "covered by chk-2" in answer.err
    assert line.tidemark.objects("till") == before


def test_a_process_prints_json_on_stdout_and_progress_on_stderr(line: TillPipeline) -> None:
    answer = line.tidemark.process("run", "till", "--json").ok()
    made = answer.json
    line.made.append(made)
    assert set(made) == FACTS
    assert made["id"] == "chk-3"
    assert sum(line.ends(made).values()) == 60
    assert any(told.startswith("read ") and told.endswith(" s") for told in answer.err.splitlines())
    _check(line, made)


def test_an_idle_range_completes_a_manifest_and_no_table_version(line: TillPipeline) -> None:
    before = line.tidemark.objects("till")
    answer = line.tidemark("run", "till").ok()
    told = dict(text.split(None, 1) for text in answer.out.splitlines())
    assert (told["id"], told["records"], told["run_bytes"]) == ("chk-4", "0", "0")
    new = set(line.tidemark.objects("till")) - set(before)
    assert len({name for name in new if name.startswith("timelines/")}) == 1
    assert not {name for name in new if name.startswith(("state/", "dead_letters/", "sinks/"))}
    line.made.append(line.tidemark("checkpoint", "show", "till", "4", "--json").ok().json | {"id": "chk-4"})
    third = line.made[2]
    assert _accounts(line, "chk-4") == line.sales.accounts(line.ends(third))


def test_list_shows_newest_first_with_the_same_facts_as_run(line: TillPipeline) -> None:
    listed = line.tidemark("checkpoint", "list", "till", "--json").ok().json
    assert [c["id"] for c in listed] == ["chk-4", "chk-3", "chk-2", "chk-1"]
    assert line.tidemark("checkpoint", "list", "till", "--limit", "2", "--json").ok().json == listed[:2]
    assert [c.pop("savepoints") for c in listed] == [[], [], [], []]
    assert not any(c.pop("released") for c in listed)
    assert listed[1:] == line.made[2::-1]
    people = line.tidemark("checkpoint", "list", "till").ok().out.splitlines()
    assert len(people) == 5
    assert people[0].split()[0] == "id"
    assert people[1].split()[0] == "chk-4"


def test_show_is_the_manifest_word_for_word(line: TillPipeline) -> None:
    shown = line.tidemark("checkpoint", "show", "till", "chk-3", "--json").ok().json
    stored = next((line.tidemark.warehouse / "till" / "timelines").rglob("*3.json"))
    assert shown.pop("savepoints") == []
    assert shown.pop("released") is None
    layers = shown.pop("layers")
    assert {uid: (told["deepest_level"], told["compaction"]) for uid, told in layers.items()} == {
        "accounts": (0, None), "tills": (0, None),
    }  # fmt: skip
    assert all(told["live_runs"] >= 1 for told in layers.values())
    assert {k: v for k, v in shown.items() if k != "resolving_sql"} == json.loads(stored.read_text())["body"]
    assert set(shown["resolving_sql"]) == {"accounts", "tills"}
    people = line.tidemark("checkpoint", "show", "till", "3").ok()
    assert people.out.splitlines()[0].split() == ["id", "chk-3"]
    line.tidemark("checkpoint", "show", "till", "chk-9").failed(3, "9")
    line.tidemark("checkpoint", "show", "till", "3.5").failed(2, "not a checkpoint id")


def test_one_key_is_shown_at_any_checkpoint(line: TillPipeline) -> None:
    for made in line.made:
        expected = line.sales.accounts(_ends(line, made))
        for account in ("", "ann", "c/d", "ünal", "e\"f'g"):
            arguments = ("state", "show", "till", "accounts", f"--key={account}", "--checkpoint", made["id"], "--json")
            answer = line.tidemark(*arguments)
            if account in expected:
                [row] = answer.ok().json
                assert {k: row[k] for k in expected[account]} == expected[account]
            else:
                answer.failed(3, made["id"])


def test_a_composite_key_is_given_column_by_column(line: TillPipeline) -> None:
    expected = line.sales.tills(_ends(line, line.made[-1]))
    for (shop, till, day), values in expected.items():
        [row] = _rows(line, "tills", "--key", shop, f"--key={till}", "--key", day)
        assert (row["sales"], row["total"]) == (values["sales"], values["total"])


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (("accounts", "--key", "nobody"), 3, "nobody"),
        (("tills", "--key", "north", "--key", "99", "--key", "2024-05-01"), 3, "north/99/2024-05-01"),
        (("tills", "--key", "north"), 2, "shop, till, day"),
        (("accounts", "--key", "ann", "--key", "bob"), 2, "2 values were given"),
        (("tills", "--key", "north", "--key", "one", "--key", "2024-05-01"), 2, "'one'"),
        (("tills", "--key", "north", "--key", "1", "--key", "May"), 2, "'May'"),
        (("tills", "--key", "north", "--key", str(2**63), "--key", "2024-05-01"), 2, str(2**63)),
        (("nowhere",), 3, "accounts, tills"),
        (("accounts", "--checkpoint", "chk-99"), 3, "99"),
        (("accounts", "--checkpoint", "last"), 2, "'last'"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, tuple) else None,
)
def test_a_key_that_is_not_there_or_makes_no_sense(
    line: TillPipeline, arguments: tuple[str, ...], code: int, word: str
) -> None:
    line.tidemark("state", "show", "till", *arguments, "--json").failed(code, word)


def test_an_export_equals_what_show_tells(line: TillPipeline, tmp_path: Path) -> None:
    import pyarrow.parquet

    for uid in ("accounts", "tills"):
        shown = _rows(line, uid, "--checkpoint", "2", "--limit", "1000")
        for kind in ("parquet", "csv"):
            to = tmp_path / f"{uid}.{kind}"
            arguments = ("state", "export", "till", uid, "--to", str(to), "--checkpoint", "chk-2", "--json")
            assert line.tidemark(*arguments).ok().json == {"rows": len(shown), "file": str(to)}
            rows = pyarrow.parquet.read_table(to).to_pylist() if kind == "parquet" else _csv(to)
            assert sorted(map(_text, rows)) == sorted(map(_text, shown))


def test_an_export_refuses_a_file_that_exists_or_cannot_be(line: TillPipeline, tmp_path: Path) -> None:
    to = tmp_path / "mine.csv"
    to.write_text("precious")
    line.tidemark("state", "export", "till", "accounts", "--to", str(to)).failed(2, "exists", "left alone")
    assert to.read_text() == "precious"
    nowhere = tmp_path / "no" / "such" / "folder.csv"
    line.tidemark("state", "export", "till", "accounts", "--to", str(nowhere)).failed(2, "folder.csv")
    line.tidemark("state", "export", "till", "nowhere", "--to", str(tmp_path / "x.csv")).failed(3, "nowhere")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mine.csv"]


def test_abort_without_anything_in_progress_says_so(line: TillPipeline) -> None:
    for options in ((), ("--execute",)):
        answer = line.tidemark("checkpoint", "abort", "till", *options, "--json").ok()
        assert answer.json == {"aborted": None, "would_abort": None, "reason": None}
        assert "no checkpoint in progress" in answer.err


def test_abort_is_a_dry_run_until_it_is_told_to_execute(line: TillPipeline) -> None:
    line.send(10)
    checkpoints.plan(line.tidemark.context, "till", PlanRequest(origin="test"))
    before = line.tidemark.objects("till")
    assert "in progress: chk-5" in line.tidemark("checkpoint", "list", "till").ok().err
    answer = line.tidemark("checkpoint", "abort", "till", "--json").ok()
    assert answer.json == {"aborted": None, "would_abort": "chk-5", "reason": None}
    assert "tidemark checkpoint abort till chk-5 --execute" in answer.err
    line.tidemark("checkpoint", "abort", "till", "chk-4", "--execute").failed(2, "chk-4 is not in progress; chk-5 is")
    assert line.tidemark.objects("till") == before
    done = line.tidemark("checkpoint", "abort", "till", "chk-5", "--execute", "--json").ok()
    assert done.json == {"aborted": "chk-5", "would_abort": None, "reason": "DECLINED"}
    [record] = line.tidemark.abort_records("till")
    assert (record["id"], record["failure"]["reason"]) == (5, "DECLINED")


def test_what_is_sealed_cannot_be_aborted_and_is_published_by_the_next_run(line: TillPipeline) -> None:
    crash = {"TIDEMARK_CRASH_AT": "seal:after", "TIDEMARK_TEST_FAULTS": "1"}
    assert line.tidemark.process("run", "till", **crash).code == -9
    line.tidemark("checkpoint", "abort", "till", "--execute", "--json").failed(4, "chk-6 was sealed before")
    made = line.run()
    assert made["id"] == "chk-6"
    assert line.starts(made) == _ends(line, line.made[3])
    assert sum(line.ends(made).values()) == 70
    _check(line, made)


def _ends(line: TillPipeline, made: dict[str, Any]) -> dict[int, int]:
    """End offsets, of what `run` tells and of a manifest alike."""
    if "ranges" in made:
        return line.ends(made)
    return {int(tp.rpartition("-")[2]): r["end"] for tp, r in made["plan"]["ranges"].items()}


def _csv(path: Path) -> list[dict[str, Any]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _text(row: dict[str, Any]) -> str:
    """One form for values of Parquet, CSV and JSON."""
    return json.dumps({name: _plain(value) for name, value in row.items()}, sort_keys=True)


def _plain(value: object) -> object:
    if isinstance(value, str) and value.startswith("["):
        return json.loads(value)
    if isinstance(value, list):
        return value
    if value is None or value == "":
        return None
    text = str(value)
    if ":" in text and text[:2] == "20":
        return datetime.fromisoformat(text).isoformat()
    return text
