"""`docs/how-to/monitor.md`, typed as it stands, over a warehouse whose Kafka and Spark are the memory twins."""

import json
import re
import shlex
from pathlib import Path

import pytest

from tests.cli.test_savepoint_page import README, ROOT, _block, _flight
from tests.support.cli import Answer, Command
from tests.support.disk import DiskPipeline
from tests.support.disk_context import commands_over
from tests.support.openlineage import complaints, receiving
from tests.support.statsd import Statsd
from tidemark.model.checkpoint.metrics import METRICS

PAGE = ROOT / "docs/how-to/monitor.md"
WORDS = re.compile(r"((?:[A-Z_]+=\S+ ?)*)(?:tidemark (.*))?")


def typed() -> list[tuple[dict[str, str], list[str]]]:
    """The lines of the page: variables, and the command behind them. What starts the stack is left out."""
    found = []
    for block in re.findall(r"^```bash\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE):
        for line in (line for line in block.splitlines() if not line.endswith("tidemark up")):
            matched = WORDS.fullmatch(line)
            assert matched, line
            variables = dict(pair.split("=", 1) for pair in matched[1].split())
            found.append((variables, shlex.split(matched[2] or "checkpoint stats flights")))
    return found


def test_every_line_of_the_page_works_in_its_order(
    tmp_path: Path, statsd: Statsd, monkeypatch: pytest.MonkeyPatch
) -> None:
    tidemark = Command(tmp_path, "127.0.0.1:1", "sc://127.0.0.1:1")
    tidemark.declare(_block(README, "python", "Pipeline("), file="flights.py")
    line = DiskPipeline(tidemark.warehouse, tidemark.context.pipeline("flights"), "flights")
    for number in range(2):
        line.send([(0, _flight(number * 10 + n), n) for n in range(9)])
        line.checkpoint()
    monkeypatch.chdir(tmp_path)
    told: list[tuple[list[str], Answer]] = []
    with receiving() as receiver, commands_over(line):
        real = {"localhost:8125": statsd.address, "http://localhost:5000": receiver.address}
        for variables, words in typed():
            line.send([(0, _flight(30 + len(told)), 30)])
            # Nobody listens at the address of the page's broker, and the run has to survive that.
            told.append((words, tidemark(*words, **{n: real.get(v, v) for n, v in variables.items()}).ok()))
    stats = [answer for words, answer in told if words[:2] == ["checkpoint", "stats"]]
    assert "lastCheckpointExternalPath" in stats[0].out
    assert METRICS.keys() < stats[1].json.keys()
    (shown,) = (answer for words, answer in told if words[:2] == ["checkpoint", "show"])
    assert "state aircraft  live runs 2, deepest level 0" in shown.err
    assert statsd.settled().keys() == {f"tidemark.flights.{name}" for name in METRICS}
    assert [event["eventType"] for event in receiver.events] == ["START", "COMPLETE"] * 2, "by either variable"
    (file,) = tmp_path.rglob("lineage.jsonl")
    events = [json.loads(text) for text in file.read_text().splitlines()] + receiver.events
    assert [c for event in events for c in complaints(event)] == []
    assert len(told) > 8
