"""Two processes at once: one completes, the other is told to wait, or wakes up too late and changes nothing."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.bad_input.conftest import BadInputPipeline, MakeLine
from tests.support.cli import TIMEOUT

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]

GAP = "commit.runs.shops:after"
"""The table's version is read, the fence has said yes, the commit is next: only the compare-and-set is left."""
PHASES = [
    "attempt:after",
    "runs.shops:before",
    "commit.runs.shops:before",
    GAP,
    "runs.shops:after",
    "gate:after",
    "seal:before",
]
"""Where the sleeper stops."""


@pytest.fixture(scope="module")
def line(make_line: MakeLine) -> BadInputPipeline:
    """A line with one checkpoint; every test sends one more record or a few."""
    made = make_line("rivals")
    made.send(1)
    made.run().ok()
    return made


def _asleep(line: BadInputPipeline, point: str) -> "subprocess.Popen[str]":
    """A `tidemark run` that has stopped itself at a crash point."""
    sleeper = line.tidemark.started(
        "run", line.name, "--json", TIDEMARK_CRASH_AT=f"{point}:1:stop", TIDEMARK_TEST_FAULTS="1"
    )
    deadline = time.monotonic() + TIMEOUT
    while psutil.Process(sleeper.pid).status() != psutil.STATUS_STOPPED:
        assert sleeper.poll() is None, sleeper.communicate()
        assert time.monotonic() < deadline, f"{point} was not reached"
        time.sleep(0.05)
    return sleeper


def _woken(sleeper: "subprocess.Popen[str]") -> tuple[int, str, str]:
    os.kill(sleeper.pid, signal.SIGCONT)
    out, err = sleeper.communicate(timeout=TIMEOUT)
    return sleeper.returncode, out, err


def _another_host(line: BadInputPipeline) -> None:
    """Makes the next command blind to the sleeper's lock, as a command on another host is."""
    for lock in (line.tidemark.warehouse / line.name / "locks").iterdir():
        lock.unlink()


def _attempt_files(line: BadInputPipeline, made: dict[str, Any], attempt: int) -> list[str]:
    """Files of one attempt that the newest version of the table names; judged by the log's own JSON."""
    (log,) = (line.tidemark.warehouse / line.name / "state/shops").glob("*/runs/_delta_log")
    live: set[str] = set()
    for commit in sorted(log.glob("*.json")):
        for action in map(json.loads, commit.read_text().splitlines()):
            live |= {action["add"]["path"]} if "add" in action else set()
            live -= {action["remove"]["path"]} if "remove" in action else set()
    return [path for path in live if path.startswith(f"{made['id'][4:]}.{attempt}/")]


def _sum(line: BadInputPipeline) -> tuple[int, int]:
    return line.shops()["north"]


def test_of_two_processes_one_completes_and_the_other_conflicts(line: BadInputPipeline) -> None:
    line.send(2, 3)
    before, checkpoints = _sum(line), len(line.checkpoints())
    rivals = [line.tidemark.started("run", line.name, "--json") for _ in range(2)]
    told = [(r.communicate(timeout=TIMEOUT), r.returncode) for r in rivals]
    codes = sorted(code for _, code in told)
    # On a slow machine the second may come after the first has finished: then it completes an idle checkpoint.
    assert codes in ([0, 4], [0, 0]), told
    for (out, err), code in told:
        if code == 4:
            assert out == ""
            assert "is busy: process" in err
            assert [text[:5] for text in err.splitlines()[-2:]] == ["Safe:", "Next:"]
    assert _sum(line) == (before[0] + 2, before[1] + 5)
    assert len(line.checkpoints()) == checkpoints + codes.count(0)


def test_every_writing_verb_conflicts_with_a_sleeper_and_changes_nothing(line: BadInputPipeline) -> None:
    line.send(4)
    sleeper = _asleep(line, "read:before")
    try:
        before = line.tidemark.objects(line.name)
        answer = line.tidemark.process("run", line.name, "--json").failed(4, "busy", f"process {sleeper.pid}")
        assert answer.out == ""
        line.run().failed(4, f"process {sleeper.pid}")
        assert line.tidemark.objects(line.name) == before
        # Who reads is not kept waiting.
        assert line.shops()
    finally:
        code, out, err = _woken(sleeper)
    assert code == 0, err
    assert '"records": 1' in out


def test_an_abort_wins_over_a_sleeper(line: BadInputPipeline) -> None:
    line.send(5)
    shops = _sum(line)
    sleeper = _asleep(line, "gate:after")
    done = line.tidemark("checkpoint", "abort", line.name, "--execute", "--json").ok().json
    code, out, err = _woken(sleeper)
    assert (code, out) == (4, ""), err
    assert "was revoked" in err
    assert _sum(line) == shops
    made = line.run().ok().json
    assert int(made["id"][4:]) == int(done["aborted"][4:]) + 1
    assert _sum(line) == (shops[0] + 1, shops[1] + 5)


@pytest.mark.parametrize("point", PHASES)
def test_a_sleeper_that_wakes_after_a_later_attempt_published_is_fenced(line: BadInputPipeline, point: str) -> None:
    line.send(6)
    shops = _sum(line)
    sleeper = _asleep(line, point)
    _another_host(line)
    made = line.run().ok().json
    assert (made["attempt"], made["records"]) == (2, 1)
    assert _sum(line) == (shops[0] + 1, shops[1] + 6)
    before = line.tidemark.objects(line.name)
    code, out, err = _woken(sleeper)
    assert (code, out) == (4, ""), err
    assert "Traceback" not in err
    after = line.tidemark.objects(line.name)
    new = {Path(name) for name in set(after) - set(before)}
    # Whatever the sleeper wrote is its own attempt's files, which no version of a table names.
    attempt = f"{made['id'][4:]}.1"
    assert {p for p in new if p.suffix != ".crc" and attempt not in p.parts} == set()
    assert {name: after[name] for name in before} == before
    assert _sum(line) == (shops[0] + 1, shops[1] + 6)
    line.send(7)
    line.run().ok()
    assert _sum(line) == (shops[0] + 2, shops[1] + 13)


def test_a_sleeper_in_the_gap_of_the_commit_that_makes_the_table_is_fenced(make_line: MakeLine) -> None:
    line = make_line("firstborn")
    line.send(1)
    sleeper = _asleep(line, GAP)
    _another_host(line)
    made = line.run().ok().json
    assert (made["attempt"], _sum(line)) == (2, (1, 1))
    code, out, err = _woken(sleeper)
    assert (code, out) == (4, ""), err
    assert (_attempt_files(line, made, 1), len(_attempt_files(line, made, 2))) == ([], 1)
    line.send(2)
    line.run().ok()
    assert _sum(line) == (2, 3)


def test_a_sleeper_in_the_gap_of_the_dead_letters_commit_is_fenced(line: BadInputPipeline) -> None:
    before = _sum(line)
    line.send(*[1] * 30)
    line.topics.produce(line.topic, [b"{"])
    sleeper = _asleep(line, "commit.sinks.shops:after")
    _another_host(line)
    made = int(line.run().ok().json["id"][4:])
    for _ in range(2):
        assert _sum(line) == (before[0] + 30, before[1] + 30)
        assert [r["value"] for r in line.dead_letters("shops", made)] == [b"{"]
        if sleeper.poll() is None:
            code, out, err = _woken(sleeper)
            assert (code, out) == (4, ""), err


def test_a_stale_commit_that_lands_between_version_and_commit_is_removed_by_the_attempt_that_loses_to_it(
    line: BadInputPipeline,
) -> None:
    line.send(8)
    before, chain = _sum(line), len(line.checkpoints())
    stale = _asleep(line, GAP)
    _another_host(line)
    heir = _asleep(line, GAP)
    # Both read the same version. The table takes the stale one's commit: no fence is asked behind this gap.
    code, out, err = _woken(stale)
    assert (code, out) == (4, ""), err
    assert "was revoked" in err
    assert _sum(line) == before, "no manifest names it"
    code, out, err = _woken(heir)
    assert code == 0, err
    made = json.loads(out)
    assert (made["attempt"], made["records"]) == (2, 1)
    assert (_attempt_files(line, made, 1), len(_attempt_files(line, made, 2))) == ([], 1)
    assert (_sum(line), len(line.checkpoints())) == ((before[0] + 1, before[1] + 8), chain + 1)


def test_a_stale_commit_of_which_no_later_attempt_knew_is_removed_by_the_next_one(line: BadInputPipeline) -> None:
    line.send(9)
    before = _sum(line)
    stale = _asleep(line, GAP)
    _another_host(line)
    line.crash("attempt:after")
    assert _woken(stale)[0] == 4
    assert _sum(line) == before
    made = line.run().ok().json
    assert made["attempt"] == 3
    assert (_attempt_files(line, made, 1), len(_attempt_files(line, made, 3))) == ([], 1)
    assert _sum(line) == (before[0] + 1, before[1] + 9)
