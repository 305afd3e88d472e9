"""Restore, fork and promote on the command line, over real Kafka and Spark; the tests grow one warehouse, in order."""

import time
from typing import Any

import pytest

from tests.cli.conftest import TillPipeline
from tests.cli.test_checkpoints import _accounts
from tests.support.kafka import Topics

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]
SECONDS = 3.0
"""Of processor time: what a verb on a timeline may take beside the start of Python, at any size of state."""


def _told(line: TillPipeline, *words: str) -> Any:
    started = time.process_time()
    told = line.tidemark(*words, "--json").ok().json
    assert time.process_time() - started < SECONDS
    return told


def _fates(line: TillPipeline) -> dict[str, str]:
    return {b["timeline"]: b["fate"] for b in _told(line, "timeline", "list", "till")}


def test_a_restore_says_what_it_would_do_then_does_it(line: TillPipeline) -> None:
    first = line.run("--max-records", "20", "--once")
    second = line.run()
    plan = _told(line, "restore", "till", "--checkpoint", "chk-1")
    assert (plan["executed"], plan["timeline"], plan["left"], plan["lost"]) == (False, None, ["chk-2"], [])
    assert set(plan["read_again"]) == {f"{line.topic}-{p}" for p in (0, 1)}
    assert _fates(line) == {"t1": "live"}
    done = _told(line, "restore", "till", "--checkpoint", "chk-1", "--restore-id", "r1", "--execute")
    assert (done["executed"], done["timeline"], done["left"]) == (True, "t2", ["chk-2"])
    again = _told(line, "restore", "till", "--checkpoint", "chk-1", "--restore-id", "r1", "--execute")
    assert again["timeline"] == "t2"
    assert _fates(line) == {"t1": "closed for t2", "t2": "live"}
    third = line.run()
    assert (third["timeline"], third["parent"], line.starts(third)) == ("t2", "chk-1", line.ends(first))
    states = [_accounts(line, made["id"]) for made in (second, third)]
    assert states[0] == states[1] == line.sales.accounts(line.ends(third))
    hashes = [_told(line, "state", "hash", "till", "tills", "--checkpoint", m["id"])["sha256"] for m in (second, third)]
    assert hashes[0] == hashes[1], "what was read twice came to the same"


def test_a_fork_grows_beside_the_live_timeline_and_is_promoted(line: TillPipeline) -> None:
    assert _told(line, "fork", "till", "fix", "--checkpoint", "chk-1")["began_now"]
    assert not _told(line, "fork", "till", "fix", "--checkpoint", "chk-1")["began_now"]
    line.tidemark("fork", "till", "t9", "--checkpoint", "chk-1").failed(2, "t<n> is reserved for restores")
    made = line.run("--timeline", "fix", "--max-records", "10", "--once")
    assert (made["timeline"], made["parent"]) == ("fix", "chk-1")
    plan = _told(line, "promote", "till", "fix")
    assert (plan["executed"], plan["left"], plan["replaced"]) == (False, ["chk-3"], [])
    line.tidemark("promote", "till", "fix", "--execute").failed(
        4, "lacks offsets of the live one: chk-3", "--timeline fix"
    )
    caught_up = line.run("--timeline", "fix")
    assert _accounts(line, caught_up["id"]) == line.sales.accounts(line.ends(caught_up))
    assert _told(line, "promote", "till", "fix", "--execute")["replaced"] == ["chk-3"]
    assert _fates(line) == {"t1": "closed for t2", "fix": "live", "t2": "closed for fix"}
    drawn = line.tidemark("timeline", "list", "till").ok().out.splitlines()
    assert [text.split()[0] for text in drawn] == ["t1", "t2", "fix"]
    assert [len(text) - len(text.lstrip()) for text in drawn] == [0, 2, 2]
    assert "fork of chk-1, 2 to chk-5" in drawn[2]
    assert _told(line, "timeline", "show", "till", "fix")["newest"] == "chk-5"
    line.tidemark("promote", "till", "t2", "--execute").failed(4, "timeline t2 was closed for fix")
    line.tidemark("timeline", "show", "till", "nobody").failed(3, "no timeline 'nobody'")


def test_what_kafka_has_lost_stops_a_restore_with_the_exact_gap(line: TillPipeline, topics: Topics) -> None:
    listed = line.tidemark("checkpoint", "list", "till", "--json").ok().json
    end = next(line.ends(c)[0] for c in listed if c["id"] == "chk-1")
    topics.trim(line.topic, end + 5)
    lost = f"offsets [{end}, {end + 5})"
    refused = line.tidemark("restore", "till", "--checkpoint", "chk-1", "--execute").failed(6, lost)
    assert "--accept-loss" in refused.err
    told = _told(line, "restore", "till", "--checkpoint", "chk-1", "--accept-loss")
    assert [(gap["start"], gap["end"]) for gap in told["lost"]] == [(end, end + 5)]
    line.tidemark("restore", "till").failed(2, "name one restore point")
    line.tidemark("restore", "till", "--savepoint", "nobody").failed(3, "no savepoint 'nobody'")
    line.tidemark("restore", "till", "--checkpoint", "1", "--rename", "accounts").failed(2, "not a rename")


def test_a_checkpoint_that_is_not_whole_never_half_starts(line: TillPipeline) -> None:
    before = _fates(line)
    (lost, *_) = sorted((line.tidemark.warehouse / "till" / "state" / "accounts" / "t1-1").rglob("*.parquet"))
    lost.unlink()
    for words in (("restore", "till"), ("fork", "till", "second")):
        line.tidemark(*words, "--checkpoint", "chk-1").failed(6, lost.name)
    assert _fates(line) == before
