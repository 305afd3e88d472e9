"""`docs/how-to/trace-columns.md`, as it is written, over a warehouse whose Kafka and Spark are the memory twins."""

import json
import re
import shlex
from pathlib import Path

import pytest

from tests.support.cli import Command
from tests.support.disk import DiskPipeline
from tests.support.disk_context import commands_over

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/how-to/trace-columns.md").read_text()
CONSOLE = re.compile(r"^```console\n\$ (tidemark [^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.fixture
def tidemark(tmp_path: Path) -> Command:
    made = Command(tmp_path, "127.0.0.1:1", "sc://127.0.0.1:1")
    [source] = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    made.declare(source, file="flights.py")
    return made


def test_every_command_prints_what_the_page_shows(tidemark: Command) -> None:
    shown = CONSOLE.findall(PAGE)
    assert len(shown) == 2
    for command, output in shown:
        reported = tidemark(*shlex.split(command)[1:]).ok().out
        assert [line.rstrip() for line in reported.splitlines()] == output.splitlines(), command


def test_all_columns_are_listed_with_the_fields_that_make_and_decide_them(tidemark: Command) -> None:
    lines = tidemark("lineage", "columns", "flights").ok().out
    assert re.search(r"aircraft\.distance +sum\(distance\) +records\.distance +records\.tail_number", lines)
    assert re.search(r"late_aircraft\.carrier +- +records\.carrier, records\.delay +records\.tail_number", lines)


def test_wrong_names_are_refused_with_the_right_ones(tidemark: Command) -> None:
    columns = ("lineage", "columns", "flights")
    tidemark(*columns, "--column", "aircraft.flight").failed(3, "no column 'aircraft.flight'", "aircraft.flights")
    tidemark(*columns, "--column", "alerts.minutes").failed(2, "state:alerts.minutes", "output:alerts.minutes")
    tidemark(*columns, "--upstream").failed(2, "--column")
    found = tidemark(*columns, "--column", "output:alerts.minutes", "--json").ok().json
    assert found["column"]["id"] == "output:alerts.minutes"


def test_a_checkpoint_answers_for_the_code_that_ran(tidemark: Command) -> None:
    line = DiskPipeline(tidemark.warehouse, tidemark.context.pipeline("flights"), "flights")
    line.log.create("planes")
    flight = {"tail_number": "N1", "carrier": "UA", "distance": 719, "delay": 0, "at": "2013-01-01T12:00:00Z"}
    line.send([(0, json.dumps(flight).encode(), 1_357_041_600_000)])
    line.checkpoint()
    source = next(tidemark.pipelines.glob("flights.py"))
    tidemark.declare(source.read_text().replace('state.sum("distance")', 'state.sum("delay")'), file="flights.py")
    ask = ("lineage", "columns", "flights", "--column", "aircraft.distance", "--json")
    with commands_over(line):
        recorded, declared = tidemark(*ask, "--checkpoint", "1").ok().json, tidemark(*ask).ok().json
    assert (recorded["as_of"], recorded["column"]["made"]) == ("chk-1", "sum(distance)")
    assert (declared["as_of"], declared["column"]["made"]) == ("declared", "sum(delay)")
    assert recorded["fingerprint"] != declared["fingerprint"]
